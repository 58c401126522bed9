//! What a command finds, and what is told of its end.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ghostlight_cli::launch::{CommandEnd, SpawnError};

use crate::support::{Place, blocking, bounded, finish, run, spawn};

#[tokio::test]
async fn exit_codes_and_signals_come_through() {
    bounded(async {
        for code in [0, 1, 3, 255] {
            let place = Place::new();
            let (_, status) = run(&place, &place.script(&format!("exit {code}"), &[])).await;
            assert_eq!(status.end, CommandEnd::Exited { code });
            assert_eq!(status.end.is_success(), code == 0);
        }
        for (name, signal) in [("TERM", 15), ("KILL", 9), ("USR1", 10)] {
            let place = Place::new();
            let (_, status) = run(&place, &place.script(&format!("kill -{name} $$"), &[])).await;
            assert_eq!(status.end, CommandEnd::Signaled { signal, core_dumped: false });
        }
    })
    .await;
}

#[tokio::test]
async fn output_is_kept_byte_for_byte_with_and_without_syncs() {
    bounded(async {
        for sync in [false, true] {
            let place = Place::new();
            let mut spec =
                place.script(r"printf 'a\r\n\377\n\nlast'; printf 'e\0f' >&2; exit 4", &[]);
            spec.sync = sync;
            let (output, status) = run(&place, &spec).await;
            assert_eq!(output.stdout, b"a\r\n\xff\n\nlast");
            assert_eq!(output.stderr, b"e\0f");
            assert_eq!(status.end, CommandEnd::Exited { code: 4 });
            assert_eq!((status.stdout_bytes, status.stderr_bytes), (10, 3));
        }
    })
    .await;
}

#[tokio::test]
async fn the_folder_holds_what_it_should_and_goes_away() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let shim = spawn(&dir, &place.script("echo x", &[])).await.expect("spawn");
        shim.ended().await.expect("end");
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .expect("folder")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("name"))
            .collect();
        names.sort();
        assert_eq!(names, ["claim", "lock", "shim.log", "status", "stderr", "stdout"]);
        for name in &names {
            let mode = fs::metadata(dir.path().join(name)).expect("file").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name} is the owner's only");
        }
        dir.remove().expect("remove");
        dir.remove().expect("remove again");
        assert!(!dir.path().exists());
    })
    .await;
}

#[tokio::test]
async fn arguments_arrive_as_they_are() {
    bounded(async {
        let place = Place::new();
        let mut spec = place.script(r#"printf '%s|' "$@""#, &[]);
        let odd = [&b""[..], b" a  b ", b"\xff\xfe", b"new\nline", b"{}", b"$HOME", b"--"];
        spec.args.extend(odd.iter().map(|arg| OsString::from_vec(arg.to_vec())));
        let (output, _) = run(&place, &spec).await;
        let mut expected = odd.join(&b'|');
        expected.push(b'|');
        assert_eq!(output.stdout, expected);
    })
    .await;
}

#[tokio::test]
async fn a_command_finds_its_run_its_folder_and_nothing_to_read() {
    bounded(async {
        let place = Place::new();
        let mut spec = place.script(
            r#"echo "$GHOSTLIGHT_RUN_ID $GHOSTLIGHT_ATTEMPT"; pwd; wc -c; readlink /proc/self/fd/0"#,
            &[],
        );
        spec.run_id = "abc~2".to_owned();
        spec.attempt = 7;
        fs::create_dir(place.path("work")).expect("folder");
        spec.cwd = place.path("work");
        let (output, _) = run(&place, &spec).await;
        let cwd = fs::canonicalize(&spec.cwd).expect("folder");
        assert_eq!(output.text().0, format!("abc~2 7\n{}\n0\n/dev/null\n", cwd.display()));
    })
    .await;
}

#[tokio::test]
async fn a_command_starts_clean() {
    bounded(async {
        let place = Place::new();
        // As careless callers do: a descriptor that exec does not close.
        let inherited = rustix::io::dup(fs::File::open("/dev/zero").expect("file")).expect("dup");
        let dir = place.launch("launch");
        let script = r#"exec grep -E '^(Sig(Blk|Ign)|NSpid|Pid)' /proc/self/status"#;
        let shim = spawn(&dir, &place.script(script, &[])).await.expect("spawn");
        let (output, _) = finish(&dir).await;
        let (text, _) = output.text();
        assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
        let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).expect("status");
        let ignored = u64::from_str_radix(ignored, 16).expect("a mask");
        // The runtime of the shim and of this test ignores SIGPIPE.
        let broken_pipe = 1 << (rustix::process::Signal::PIPE.as_raw() - 1);
        assert_eq!(ignored & broken_pipe, 0, "{text}");
        let group = shim.claim().process_group;
        assert!(text.contains(&format!("Pid:\t{group}\n")), "{text}");
        shim.ended().await.expect("end");

        let place = Place::new();
        let (output, _) = run(&place, &place.command("ls", &["/proc/self/fd"])).await;
        // The three streams, and the folder being listed.
        assert_eq!(output.text().0, "0\n1\n2\n3\n");

        let place = Place::new();
        let (output, _) = run(&place, &place.command("cat", &["/proc/self/stat"])).await;
        let fields: Vec<&str> = output.text().0.split(' ').collect();
        let (pid, shim, group, session, tty) =
            (fields[0], fields[3], fields[4], fields[5], fields[6]);
        assert_eq!(pid, group, "a group of its own");
        assert_eq!(shim, session, "in the shim's session");
        assert_eq!(tty, "0", "without a terminal");
        drop(inherited);
    })
    .await;
}

#[tokio::test]
async fn the_shim_keeps_nothing_of_its_caller() {
    bounded(async {
        let place = Place::new();
        let inherited = rustix::io::dup(fs::File::open("/dev/zero").expect("file")).expect("dup");
        let gate = place.gate("gate");
        let dir = place.launch("launch");
        let spec = place.script(r#"echo up; read x < "$1""#, &[&gate.path]);
        let shim = spawn(&dir, &spec).await.expect("spawn");
        crate::support::follow(&dir).next().await.expect("follow").expect("the command runs");
        let proc = PathBuf::from(format!("/proc/{}", shim.claim().pid));
        let folder = fs::canonicalize(dir.path()).expect("folder");
        let null = Path::new("/dev/null");
        // The pipe through which the shim learns of exec is closed an instant after it.
        while !descriptors(&proc).iter().all(|to| to.starts_with(&folder) || to == null) {
            tokio::task::yield_now().await;
        }
        assert_eq!(fs::read_link(proc.join("cwd")).expect("cwd").as_os_str(), "/");
        assert_eq!(fs::read_dir(proc.join("task")).expect("threads").count(), 1);
        gate.open();
        shim.ended().await.expect("end");
        drop(inherited);
    })
    .await;
}

fn descriptors(proc: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(proc.join("fd")).expect("descriptors");
    // One that is closed meanwhile has no target any more.
    entries.filter_map(|entry| fs::read_link(entry.expect("entry").path()).ok()).collect()
}

#[tokio::test]
async fn what_cannot_be_executed_says_why() {
    bounded(async {
        let place = Place::new();
        fs::write(place.path("data"), "no program").expect("file");
        let data = place.path("data").display().to_string();
        let folder = place.path("").display().to_string();
        let cases = [
            ("no-such-command-anywhere", libc_errno("ENOENT"), "command not found: no-such-com"),
            ("./nothing-here", libc_errno("ENOENT"), "command not found: ./nothing-here"),
            (&data, libc_errno("EACCES"), "not executable: "),
            (&folder, libc_errno("EACCES"), "not executable: "),
        ];
        for (at, (program, errno, text)) in cases.into_iter().enumerate() {
            let dir = place.launch(&format!("launch-{at}"));
            let shim = spawn(&dir, &place.command(program, &["x"])).await.expect("spawn");
            let (output, status) = finish(&dir).await;
            assert_eq!(output.text(), ("", ""));
            let CommandEnd::SpawnFailed { errno: seen, text: reason } = &status.end else {
                panic!("{program}: {status:?}");
            };
            assert_eq!(*seen, errno, "{program}");
            assert!(reason.starts_with(text), "{reason}");
            shim.ended().await.expect("end");
        }
    })
    .await;
}

#[tokio::test]
async fn a_working_directory_that_is_gone_says_so() {
    bounded(async {
        let place = Place::new();
        let mut spec = place.command("true", &[]);
        spec.cwd = place.path("gone");
        let (_, status) = run(&place, &spec).await;
        let CommandEnd::SpawnFailed { errno, text } = &status.end else {
            panic!("{status:?}");
        };
        assert_eq!(*errno, libc_errno("ENOENT"));
        assert!(text.starts_with("working directory "), "{text}");
    })
    .await;
}

#[tokio::test]
async fn arguments_that_cannot_be_passed_are_refused_for_good() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let error = spawn(&dir, &place.command("true", &[&"x".repeat(200_000)])).await;
        let error = error.expect_err("an argument of 200,000 bytes");
        assert!(matches!(error, SpawnError::TooLong), "{error}");
        assert!(!error.is_retryable());

        let error = spawn(&dir, &place.command("true", &["a\0b"])).await.expect_err("a NUL");
        assert!(matches!(error, SpawnError::Nul), "{error}");
        assert!(!error.is_retryable());
        assert_eq!(fs::read_dir(dir.path()).expect("folder").count(), 0, "nothing was started");
    })
    .await;
}

#[tokio::test]
async fn the_longest_argument_arrives() {
    use ghostlight_cli::inputs::ARGUMENT_BYTES_MAX;

    bounded(async {
        let place = Place::new();
        let script = "printf %s \"$1\" | wc -c";
        let longest = "x".repeat(ARGUMENT_BYTES_MAX);
        let (output, _) = run(&place, &place.script(script, &[Path::new(&longest)])).await;
        assert_eq!(output.text().0, format!("{ARGUMENT_BYTES_MAX}\n"));

        let dir = place.launch("too-long");
        let longer = longest + "x";
        let error = spawn(&dir, &place.script(script, &[Path::new(&longer)])).await;
        assert!(matches!(error, Err(SpawnError::TooLong)), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_shim_that_cannot_set_itself_up_says_why() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        fs::remove_dir(dir.path()).expect("remove");
        let error = spawn(&dir, &place.command("true", &[])).await.expect_err("no folder");
        assert!(error.to_string().contains("open the launch folder"), "{error}");
        assert!(error.is_retryable());

        let mut spec = place.command("true", &[]);
        spec.shim = "/nothing/here".into();
        let error = spawn(&dir, &spec).await.expect_err("no shim");
        assert!(matches!(error, SpawnError::Start(_)), "{error}");

        spec.shim = "/bin/false".into();
        let error = spawn(&dir, &spec).await.expect_err("no shim");
        assert!(matches!(error, SpawnError::Died), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_script_without_interpreter_line_runs_like_in_a_shell() {
    bounded(async {
        let place = Place::new();
        let script = place.path("script");
        let written = script.clone();
        blocking(move || {
            fs::write(&written, "echo from the script\n").expect("script");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&written, mode).expect("mode");
        })
        .await;
        let (output, _) = run(&place, &place.command("./script", &[])).await;
        assert_eq!(output.text().0, "from the script\n");
    })
    .await;
}

fn libc_errno(name: &str) -> i32 {
    let errno = match name {
        "ENOENT" => rustix::io::Errno::NOENT,
        "EACCES" => rustix::io::Errno::ACCESS,
        _ => panic!("{name}"),
    };
    errno.raw_os_error()
}
