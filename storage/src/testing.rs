//! What several tests of this crate need of the machine.

mod copy;
mod disk;

use std::process::Command;

use rustix::process::{Gid, Uid};

pub(crate) use self::copy::copy;
pub(crate) use self::disk::SmallDisk;

/// Runs the test as a user without privileges: for root permissions mean nothing.
pub(crate) fn unprivileged(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                // Both concern this thread alone.
                let nobody = 65_534;
                rustix::thread::set_thread_gid(Gid::from_raw(nobody)).unwrap();
                rustix::thread::set_thread_uid(Uid::from_raw(nobody)).unwrap();
            }
            test();
        });
        thread.join().unwrap();
    });
}

impl SmallDisk {
    /// Changes its options.
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        // With the source, so that the old options, of which some are not allowed here, are not added.
        let remount = ["-t", "tmpfs", "-o", &options, "tmpfs"];
        let mounted = Command::new("mount").args(remount).arg(self.path()).status();
        assert!(mounted.unwrap().success());
    }
}
