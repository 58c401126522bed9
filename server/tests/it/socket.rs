//! The socket file.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::process::Command;

use ghostlight_server::{Client, ClientError, ControlSocket};

use crate::support::{Owner, boss};

#[tokio::test]
async fn only_its_owner_can_connect_whatever_the_umask() {
    if std::env::var_os("IN_UMASK").is_none() {
        // A umask is the whole process's, so that another one has to be another process's.
        for umask in ["000", "022", "777"] {
            let own = std::env::current_exe().unwrap();
            let script = format!("umask {umask}; exec \"$0\" --exact \"$1\"");
            let test = "socket::only_its_owner_can_connect_whatever_the_umask";
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).arg(own).arg(test).env("IN_UMASK", umask);
            let output = command.output().unwrap();
            assert!(output.status.success(), "umask {umask}: {output:?}");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let _socket = ControlSocket::bind(folder.path()).await.unwrap();
    let file = std::fs::metadata(folder.path().join("control.sock")).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_folder_may_have_a_path_longer_than_a_socket_may() {
    let parent = tempfile::tempdir().unwrap();
    let deep = parent.path().join("x".repeat(100)).join("y".repeat(100));
    std::fs::create_dir_all(&deep).unwrap();
    let owner = Owner::start_in(tempfile::tempdir_in(&deep).unwrap()).await;
    owner.done("r", 1).await;
    let client = Client::connect(owner.path()).await.unwrap();
    assert_eq!(client.agents().await.unwrap(), [boss()]);
}

#[tokio::test]
async fn what_a_killed_owner_left_is_replaced() {
    let owner = Owner::start().await;
    owner.serving.abort();
    let folder = owner.folder;
    let _ = owner.serving.await;
    // The file is there, and nobody listens.
    assert!(folder.path().join("control.sock").exists());
    let refused = Client::connect(folder.path()).await;
    assert!(matches!(refused, Err(ClientError::NoOwner)), "{refused:?}");
    // It may have been killed in the middle of binding, too.
    std::fs::create_dir(folder.path().join("control.new")).unwrap();
    std::fs::write(folder.path().join("control.new/control.sock"), "").unwrap();
    let mut owner = Owner::start_in(folder).await;
    owner.client().await;
    owner.stop().await;
    assert_eq!(std::fs::read_dir(owner.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn without_an_owner_there_is_nobody_to_ask() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("missing")] {
        let refused = Client::connect(&path).await;
        assert!(matches!(refused, Err(ClientError::NoOwner)), "{refused:?}");
    }
    let unbound = ControlSocket::bind(&folder.path().join("missing")).await;
    let text = unbound.unwrap_err().to_string();
    assert!(text.contains("missing/control.sock"), "{text}");
}
