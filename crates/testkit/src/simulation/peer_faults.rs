//! What goes wrong between the engines of a simulated pool: questions and answers that are lost, that come
//! twice, and engines that end in the middle. Owns when a known defect of the code is provoked by it.

use azekura_proto::message::{Answer, Request, RequestHead};
use azekura_proto::{EngineId, Status};

use super::faults::KnownDefect;
use super::peers::PeerNetwork;
use super::pool::Pool;

impl PeerNetwork for Pool {
    fn call_peer(
        &self,
        (from, run): (EngineId, u64),
        to: EngineId,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Answer {
        let alive_or_unwind = || self.unwind_if_ended(from, run);
        alive_or_unwind();
        let kill_inside = |when: &str| {
            if self.strikes(|faults| faults.killed_inside) {
                self.note(format!("{when} {} at engine {}", request.name(), to.0));
                self.kill(from);
            }
            alive_or_unwind();
        };
        kill_inside("killed before");
        self.travel();
        alive_or_unwind();
        let repeats = self.strikes(|faults| faults.peer_repeat);
        let lost = |when: &str| {
            self.note(format!("{when}: {} from engine {} to {}", request.name(), from.0, to.0));
            Err(Status::PeerUnreachable)
        };
        let is_commit = matches!(request, Request::Commit { .. });
        if self.strikes(|faults| faults.peer_lost)
            || (is_commit && self.strikes_known(KnownDefect::ReadBeforeCommit))
        {
            return lost("request lost");
        }
        if repeats {
            self.note(format!("twice: {} from engine {} to {}", request.name(), from.0, to.0));
            self.enter(to, |peer| peer.serve_peer(head, request, bulk));
            alive_or_unwind();
        }
        let answer = self.enter(to, |peer| peer.serve_peer(head, request, bulk));
        alive_or_unwind();
        let Some(answer) = answer else { return lost("engine down") };
        let may_leave_gap = matches!(request, Request::ShardExtend { .. });
        if may_leave_gap && !self.shows(KnownDefect::AppendLeavesGap) {
            self.travel();
            return answer;
        }
        if self.strikes(|faults| faults.peer_lost) {
            return lost("answer lost");
        }
        self.travel();
        kill_inside("killed after");
        answer
    }
}
