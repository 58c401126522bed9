//! The one command that executes a plan again.

use std::path::{Path, PathBuf};

use crate::plan::Plan;

/// The environment variable that holds the one plan to execute.
pub(crate) const PLAN_VARIABLE: &str = "GHOSTLIGHT_SIM_PLAN";

/// The plan of the environment, if there is one.
///
/// # Panics
/// If it is no plan: a test that cannot do what was asked for must not pass.
pub(crate) fn plan_of_environment() -> Option<Plan> {
    let text = std::env::var_os(PLAN_VARIABLE).filter(|text| !text.is_empty())?;
    match text.to_string_lossy().parse() {
        Ok(plan) => Some(plan),
        Err(error) => panic!("the environment variable {PLAN_VARIABLE} holds no plan: {error}"),
    }
}

/// The command that executes `plan` in this process's test or program, called on the thread that
/// simulates. If the test harness has begun that thread, it has named it after the test; the name of any
/// other thread would select no test at all, and then all of the target are executed.
pub(crate) fn command(plan: &Plan) -> String {
    let set = format!("{PLAN_VARIABLE}={}", quoted(&plan.to_string()));
    let program = std::env::current_exe().unwrap_or_default();
    let arguments = std::env::args().skip(1).map(|word| format!(" {}", quoted(&word)));
    let arguments: String = arguments.collect();
    let thread = std::thread::current();
    let package = std::env::var("CARGO_PKG_NAME").ok().zip(std::env::var_os("CARGO_MANIFEST_DIR"));
    match package {
        // What decides the choices of tokio has to be the same.
        Some((package, folder)) => {
            let flags = std::env::var("RUSTFLAGS").ok().filter(|flags| !flags.is_empty());
            let flags =
                flags.map_or_else(String::new, |flags| format!("RUSTFLAGS={} ", quoted(&flags)));
            let test = thread.name().filter(|name| *name != "main" && is_of_the_harness());
            let what = of_cargo(&program, &package, &PathBuf::from(folder), test);
            let of_program = if what.starts_with("run") && !arguments.is_empty() {
                format!(" --{arguments}")
            } else {
                String::new()
            };
            format!("{set} {flags}cargo {what}{of_program}")
        }
        None => format!("{set} {}{arguments}", quoted(&program.to_string_lossy())),
    }
}

/// Whether the test harness has begun this thread, as far as can be seen: nothing tells but what it calls.
fn is_of_the_harness() -> bool {
    std::backtrace::Backtrace::force_capture().to_string().contains("test::run_test")
}

/// Which program of a package this is, in the words of cargo.
fn of_cargo(program: &Path, package: &str, folder: &Path, test: Option<&str>) -> String {
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let parent = program.parent().unwrap_or(Path::new(""));
    let kind = parent.file_name().unwrap_or_default().to_string_lossy();
    let in_a_folder = matches!(&*kind, "deps" | "examples");
    let profile = if in_a_folder { parent.parent().unwrap_or(parent) } else { parent };
    let profile = match &*profile.file_name().unwrap_or_default().to_string_lossy() {
        "release" => " --release".to_owned(),
        "debug" | "" => String::new(),
        other => format!(" --profile {other}"),
    };
    let of = format!("{profile} -p {package}");
    // The programs of tests have a hash behind their name.
    let tested = name
        .rsplit_once('-')
        .filter(|(_, hash)| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let exact = test.map_or_else(String::new, |test| format!(" -- --exact {}", quoted(test)));
    match (&*kind, tested) {
        ("deps", Some((target, _))) => format!("test{of}{}{exact}", of_test(target, folder)),
        ("examples", Some((target, _))) => format!("test{of} --example {target}{exact}"),
        ("examples", None) => format!("run{of} --example {name}"),
        _ => format!("run{of} --bin {name}"),
    }
}

/// The option that selects the target that a test program was made of; none where that cannot be seen,
/// and the exact name of the test has to do.
fn of_test(target: &str, folder: &Path) -> String {
    let entries = std::fs::read_dir(folder.join("tests")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| {
            let path = entry.path();
            path.extension().is_some_and(|extension| extension == "rs")
                || path.join("main.rs").exists()
        })
        .filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()))
        .filter(|name| name.replace('-', "_") == target.replace('-', "_"))
        .collect();
    names.sort();
    let has = |file: &str| folder.join("src").join(file).exists();
    match (names.pop(), has("lib.rs"), has("main.rs") || has("bin")) {
        (Some(name), ..) => format!(" --test {name}"),
        (None, true, false) => " --lib".to_owned(),
        (None, false, true) => " --bins".to_owned(),
        (None, ..) => String::new(),
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@,+".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (program, test, command) in [
            (
                "/t/debug/deps/broken-0123456789abcdef",
                Some("m::a_test"),
                "test -p sim --test broken -- --exact m::a_test",
            ),
            (
                "/t/release/deps/ghostlight_sim-0123456789abcdef",
                Some("a"),
                "test --release -p sim --lib -- --exact a",
            ),
            ("/t/debug/deps/broken-0123456789abcdef", None, "test -p sim --test broken"),
            (
                "/t/quick/examples/crash_safe",
                None,
                "run --profile quick -p sim --example crash_safe",
            ),
            (
                "/t/debug/examples/crash_safe-0123456789abcdef",
                Some("a"),
                "test -p sim --example crash_safe -- --exact a",
            ),
            ("/t/debug/prove", Some("worker"), "run -p sim --bin prove"),
        ] {
            assert_eq!(of_cargo(Path::new(program), "sim", folder, test), command);
        }
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("a::b"), "a::b");
        assert_eq!(quoted("seed=1 fail@2"), "'seed=1 fail@2'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
