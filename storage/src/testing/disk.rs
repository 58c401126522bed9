//! Small disks. The tests of crashes use them as well.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

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

    /// Fills it with a file until only so many bytes are free, rounded up to whole blocks.
    pub(crate) fn fill(&self, free: u64) {
        // To remove an earlier one would not be enough: a process that another test has just forked
        // may still have it open.
        let mut filler = File::create(self.path().join("filler")).unwrap();
        let chunk = vec![0; 1 << 20];
        loop {
            let now = rustix::fs::statvfs(self.path()).unwrap();
            let blocks = now.f_bavail.saturating_sub(free.div_ceil(now.f_frsize));
            let bytes = (blocks * now.f_frsize).min(chunk.len() as u64);
            match filler.write(&chunk[..bytes as usize]) {
                Ok(0) => return,
                Ok(_) => {}
                // Somebody else has taken the last block.
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a test that failed may still have files open on it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
