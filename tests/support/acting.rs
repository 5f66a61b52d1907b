//! Values that run code of the test when they are cloned or dropped.

use std::sync::Arc;

/// A number that runs a function of the test whenever it is cloned, or once when it is dropped. A
/// clone acts when it is cloned as well, but not when it is dropped.
pub struct Acting {
    pub number: u32,
    when_cloned: Option<Arc<dyn Fn() + Send + Sync>>,
    when_dropped: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Acting {
    /// A number that does nothing.
    pub fn idle(number: u32) -> Self {
        Acting {
            number,
            when_cloned: None,
            when_dropped: None,
        }
    }

    pub fn when_cloned(number: u32, act: impl Fn() + Send + Sync + 'static) -> Self {
        let mut acting = Self::idle(number);
        acting.when_cloned = Some(Arc::new(act));
        acting
    }

    pub fn when_dropped(number: u32, act: impl FnOnce() + Send + Sync + 'static) -> Self {
        let mut acting = Self::idle(number);
        acting.when_dropped = Some(Box::new(act));
        acting
    }
}

impl Clone for Acting {
    fn clone(&self) -> Self {
        if let Some(act) = &self.when_cloned {
            act();
        }
        let mut clone = Self::idle(self.number);
        clone.when_cloned.clone_from(&self.when_cloned);
        clone
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if let Some(act) = self.when_dropped.take() {
            act();
        }
    }
}
