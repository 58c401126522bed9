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
    /// Mounts it; `None` as [`mount_tmpfs`] says.
    pub(crate) fn mount(options: &str) -> Option<Self> {
        let mount = tempfile::tempdir().unwrap();
        mount_tmpfs(mount.path(), options).then(|| Self { mount })
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

/// Mounts a small file system at a path. `false` if that is not to be had: then the test has been run
/// in namespaces of its own, where it is, or is left out, which is said.
pub(crate) fn mount_tmpfs(path: &Path, options: &str) -> bool {
    let test = std::thread::current().name().expect("a test's thread has its name").to_owned();
    // Past what captures the output of tests that pass.
    let leave_out = |why: &str| {
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: {why}");
    };
    if std::env::var_os("GHOSTLIGHT_TEST_NO_MOUNT").is_some() {
        leave_out("GHOSTLIGHT_TEST_NO_MOUNT is set");
        return false;
    }
    let mount = ["-t", "tmpfs", "-o", options, "tmpfs"];
    let mounted = Command::new("mount").args(mount).arg(path).output().unwrap();
    if mounted.status.success() {
        return true;
    }
    let why = String::from_utf8_lossy(&mounted.stderr);
    let may_mount = rustix::process::geteuid().is_root();
    assert!(
        !may_mount,
        "a small tmpfs cannot be mounted; GHOSTLIGHT_TEST_NO_MOUNT=1 leaves this out: {why}"
    );
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    if !unshare().arg("true").output().is_ok_and(|ended| ended.status.success()) {
        leave_out("only root can mount a small tmpfs here");
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let ended = unshare().arg(program).args(["--exact", &test, "--nocapture"]).status().unwrap();
    assert!(ended.success(), "in its own namespaces: {ended}");
    false
}
