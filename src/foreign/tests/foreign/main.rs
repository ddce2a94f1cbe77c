//! Foreign runs, held against what their own libraries read: values, torn files, live writers, and the projection.

mod common;
mod databases;
mod projection;
mod torn;
mod values;
