//! Decides about the membership that a newcomer shows: its patterns, or one fixed text that both owners are told, out.

use std::sync::Arc;

use capd_proto::fleet::machine::NotAdmitted;
use capd_proto::fleet::{Agent, Membership, MembershipError, Refused};
use capd_proto::identity::Did;
use capd_proto::link;
use capd_proto::message::Member;

use super::Fleet;
use crate::daemon::directory::unlinked::REVOCATIONS_OLD;

impl Fleet {
    /// What a peer's HELLO or HELLO_ACK shows: its membership, if that counts. `needs_none` is for peers that the owner
    /// admits by other means. The registry is not asked.
    ///
    /// **Errors:** why the peer gets no link.
    pub(in crate::daemon) fn meet(
        &self,
        peer: &Did,
        needs_none: bool,
        shown: &Member<'_>,
    ) -> Result<Option<Arc<Membership>>, &'static str> {
        let not_listed = link::NotAdmitted::NotListed.as_str();
        let judged = match (self.registry(), &shown.membership) {
            (None, _) | (Some(_), None) if needs_none => return Ok(None),
            (None, _) => Err((not_listed, None)),
            (Some(_), None) => Err((NONE_SHOWN, None)),
            (Some(registry), Some(membership)) => match Agent::from_did(peer.as_str()) {
                Ok(agent) => registry.admit(membership, &agent).map_err(|why| (text(&why), Some(why))),
                Err(_) => Err((not_listed, None)),
            },
        };
        match judged {
            Ok(membership) => Ok(Some(Arc::new(membership))),
            Err((why, cause)) => {
                if let Some(cause) = cause {
                    self.count_refused(label(&cause));
                    tracing::debug!(%peer, %cause, "a membership does not count");
                }
                if needs_none { Ok(None) } else { Err(why) }
            }
        }
    }
}

/// What both owners are told: no more than the member knows of itself.
fn text(why: &NotAdmitted) -> &'static str {
    let why = match why {
        NotAdmitted::RevocationsTooOld(_) => return REVOCATIONS_OLD,
        NotAdmitted::Membership(why) => why,
    };
    match why {
        Refused::Revoked => "the membership is revoked",
        Refused::OtherMember => "the membership is of another agent",
        Refused::Membership(MembershipError::OtherCell(_)) => "the membership is of another cell",
        Refused::Membership(MembershipError::NotYet { .. }) => "the membership has not begun",
        Refused::Membership(MembershipError::Expired { .. }) => "the membership has ended",
        Refused::Membership(MembershipError::Signature) => {
            "the membership is not signed by the cell's authority"
        }
        Refused::Membership(MembershipError::Record(_)) => "the membership is malformed",
        // These are about registrations.
        Refused::TooLong(_)
        | Refused::Path(_)
        | Refused::Malformed(_)
        | Refused::OtherAgent
        | Refused::OtherPlace
        | Refused::NotCanonical
        | Refused::FromTheFuture
        | Refused::Expired
        | Refused::NotAllowed
        | Refused::Signature
        | Refused::Older => "the membership does not count",
    }
}

fn label(why: &NotAdmitted) -> &'static str {
    match why {
        NotAdmitted::RevocationsTooOld(_) => TOO_OLD,
        NotAdmitted::Membership(why) => why.why(),
    }
}

/// The reason, in one word, for which nobody is admitted while revocations are not known.
pub(super) const TOO_OLD: &str = "revocations_too_old";

/// A peer of a fleet without one.
const NONE_SHOWN: &str = "the membership is missing: it is not listed, and shows none";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::directory::unlinked::MEMBERSHIP;

    #[test]
    fn every_text_about_a_membership_begins_as_the_log_expects() {
        let cell = "other".parse().unwrap();
        for why in [
            Refused::Revoked,
            Refused::OtherMember,
            Refused::Membership(MembershipError::OtherCell(cell)),
            Refused::Membership(MembershipError::NotYet { not_before_ms: 1 }),
            Refused::Membership(MembershipError::Expired { not_after_ms: 1 }),
            Refused::Membership(MembershipError::Signature),
            Refused::Older,
        ] {
            assert!(text(&NotAdmitted::Membership(why)).starts_with(MEMBERSHIP));
        }
        assert!(NONE_SHOWN.starts_with(MEMBERSHIP) && !REVOCATIONS_OLD.starts_with(MEMBERSHIP));
    }
}
