//! The bytes that other trackers' files are made of: protobuf, `TensorBoard`'s records, W&B's blocks. [`crate::loggers`]
//! writes them; whoever reads foreign runs takes them apart again.
//!
//! Readers look at a piece of a file and say what stands at its start. They never panic and never guess: bytes that are not
//! all there yet are [`Taken::Torn`], bytes that are wrong are told with the reason.

pub mod blocks;
pub mod proto;
pub mod records;

/// What stands at the start of a piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken<T> {
    /// A whole record, and how many bytes of the file it takes.
    Record { data: T, bytes: u64 },
    /// It ends before the record does: read again when there is more. `needs`: at least so many bytes from here.
    Torn { needs: u64 },
    /// Damaged. Go on after `bytes`; None: nothing after it can be found.
    Bad { reason: String, bytes: Option<u64> },
}
