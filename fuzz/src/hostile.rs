//! Hashes that collide.

use std::hash::{BuildHasher, Hasher};

/// Makes hashes of keys of one byte.
#[derive(Clone, Copy, Debug)]
pub struct Hostile(pub u8);

#[derive(Clone, Copy, Debug)]
pub struct Hashing {
    kind: u8,
    key: u64,
}

impl BuildHasher for Hostile {
    type Hasher = Hashing;

    fn build_hasher(&self) -> Hashing {
        Hashing {
            kind: self.0,
            key: 0,
        }
    }
}

impl Hasher for Hashing {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.key = (self.key << 8) | u64::from(byte);
        }
    }

    fn finish(&self) -> u64 {
        match self.kind % 6 {
            0 => self.key,
            1 => 0,
            2 => self.key % 3,
            3 => self.key << 56,
            4 => self.key << 30,
            _ => self.key.wrapping_mul(0x2545_F491_4F6C_DD1D),
        }
    }
}
