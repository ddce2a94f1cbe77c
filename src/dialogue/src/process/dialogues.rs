//! What belongs to one dialogue, made at its first use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::tool::InstanceId;

/// One place a dialogue; empty until something is put there. Whoever holds a place's lock keeps the dialogue's other calls out.
#[derive(Debug)]
pub(crate) struct OfDialogues<T>(Mutex<HashMap<InstanceId, Arc<tokio::sync::Mutex<Option<T>>>>>);

impl<T> Default for OfDialogues<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> OfDialogues<T> {
    pub fn place(&self, instance: &InstanceId) -> Arc<tokio::sync::Mutex<Option<T>>> {
        Arc::clone(self.all().entry(instance.clone()).or_default())
    }

    /// Drops what stands there, once no call holds it any more.
    pub fn remove(&self, instance: &InstanceId) {
        let removed = self.all().remove(instance);
        drop(removed);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<InstanceId, Arc<tokio::sync::Mutex<Option<T>>>>> {
        self.0
            .lock()
            .expect("nothing panics while it holds the lock")
    }
}
