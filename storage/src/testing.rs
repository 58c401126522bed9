//! What several tests of this crate need of the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Gid, Uid};
use tempfile::TempDir;

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

/// A small file system of its own, unmounted when it is dropped.
pub(crate) struct SmallDisk {
    mount: TempDir,
}

impl SmallDisk {
    /// Mounts it. `None` if the environment says that this machine cannot mount; without that
    /// word, a machine that cannot fails the test.
    pub(crate) fn mount(options: &str) -> Option<Self> {
        if std::env::var_os("GHOSTLIGHT_TEST_NO_MOUNT").is_some() {
            return None;
        }
        let mount = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(mount.path())
            .output()
            .unwrap();
        assert!(
            mounted.status.success(),
            "this test mounts a small tmpfs, which needs root: {}\n\
             set GHOSTLIGHT_TEST_NO_MOUNT=1 to leave it out",
            String::from_utf8_lossy(&mounted.stderr)
        );
        Some(Self { mount })
    }

    pub(crate) fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Changes its options.
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let mounted = Command::new("mount").args(["-o", &options]).arg(self.path()).status();
        assert!(mounted.unwrap().success());
    }

    /// Fills it with a file until only so many bytes are free.
    pub(crate) fn fill(&self, free: u64) -> PathBuf {
        let now = rustix::fs::statvfs(self.path()).unwrap();
        let file = self.path().join("filler");
        let size = (now.f_bavail * now.f_frsize).saturating_sub(free);
        std::fs::write(&file, vec![0; size as usize]).unwrap();
        file
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a test that failed may still have files open on it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
