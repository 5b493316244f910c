//! A command and all processes that it has started.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid,
};
use tokio::process::Child;
use tokio::time::sleep;

/// A process group. It is killed when this is dropped, unless it was released.
pub(super) struct Group(Option<Pid>);

impl Group {
    /// The group that a child leads.
    pub(super) fn led_by(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// Leaves what still runs alone.
    pub(super) fn release(mut self) {
        self.0 = None;
    }

    pub(super) fn terminate(&self) {
        self.send(Signal::TERM);
    }

    pub(super) fn kill(&self) {
        self.send(Signal::KILL);
    }

    /// Waits until no process is left. The leader must have been waited for.
    pub(super) async fn gone(&self) {
        let Some(id) = self.0 else { return };
        while test_kill_process_group(id) != Err(Errno::SRCH) {
            // The first process of a container is the parent of processes whose own parent has
            // ended. They count until it has waited for them.
            while let Ok(Some(_)) = waitpgid(id, WaitOptions::NOHANG) {}
            sleep(LOOK).await;
        }
    }

    fn send(&self, signal: Signal) {
        if let Some(id) = self.0 {
            // It fails if nothing is left.
            let _ = kill_process_group(id, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Nothing else shows that a group is empty.
const LOOK: Duration = Duration::from_millis(10);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{getpid, set_child_subreaper};
    use tokio::process::Command;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn orphans_of_the_first_process_do_not_remain() {
        // It gets them, like the first process of a container.
        set_child_subreaper(Some(getpid())).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & exit 3"]).process_group(0);
        let mut child = command.spawn().unwrap();
        let group = Group::led_by(&child);
        child.wait().await.unwrap();
        group.kill();
        timeout(Duration::from_secs(60), group.gone()).await.expect("a process is left");
        group.release();
    }
}
