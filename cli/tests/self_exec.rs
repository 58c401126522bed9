//! A program that is its own shim, even after its file has been removed.
//!
//! Without the test harness, because a shim is entered at the first line of `main`. What is tested
//! runs in a copy of this program, which removes itself before it launches anything.

use std::env;
use std::fs;
use std::process::{Command, ExitCode};

use ghostlight_cli::launch::{CommandEnd, Conclusion, LaunchDir, Spec, conclude, spawn};

const COPY: &str = "GHOSTLIGHT_TEST_COPY";

fn main() -> ExitCode {
    if let Some(code) = ghostlight_cli::shim::enter() {
        return code;
    }
    match env::var_os(COPY) {
        Some(folder) => launch_without_a_file(folder.as_ref()),
        None => {
            let folder = tempfile::tempdir().expect("temporary folder");
            let copy = folder.path().join("copy");
            fs::copy(env::current_exe().expect("this program"), &copy).expect("copy");
            let status = Command::new(&copy).env(COPY, folder.path()).status().expect("run");
            assert!(status.success(), "{status}");
        }
    }
    ExitCode::SUCCESS
}

fn launch_without_a_file(folder: &std::path::Path) {
    fs::remove_file(env::current_exe().expect("this program")).expect("remove");
    let dir = LaunchDir::plan(&folder.join("launch")).expect("plan");
    dir.create().expect("create");
    let spec = Spec {
        shim: Spec::THIS_PROGRAM.into(),
        program: "sh".into(),
        args: vec!["-c".into(), "exit 3".into()],
        cwd: folder.to_owned(),
        run_id: "run-1".to_owned(),
        attempt: 1,
        sync: false,
        open_files: None,
    };
    let shim = spawn(&dir, &spec).expect("spawn");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.expect("runtime").block_on(conclude(&dir, shim)).expect("conclude") {
        Conclusion::Ended(status) => assert_eq!(status.end, CommandEnd::Exited { code: 3 }),
        Conclusion::Vanished(claim) => panic!("{claim:?}"),
    }
}
