//! Permissions of visitors.

use std::fmt;
use std::ops::BitOr;

/// The permissions of one kind of visitor. [`Rights`] combine one or several roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// See queues and messages, but no payloads and header values unless
    /// [`contents_for`](crate::Dashboard::contents_for) permits it.
    Viewer,
    /// Everything that a viewer may do. Also: send, cancel, reschedule and redrive messages; count
    /// matching dead letters; stop jobs; pause, resume, limit and check queues; change schedules.
    Operator,
    /// Everything that an operator may do. Also: purge dead letters, and repair queues.
    Admin,
    /// Claim messages, which shows their contents, and settle and extend leases. With only this
    /// role, a visitor sees no pages, lists or metrics.
    Worker,
}

impl Role {
    /// Returns the name in files of users and on pages: `viewer`, `operator`, `admin` or `worker`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Worker => "worker",
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Viewer => VIEW,
            Self::Operator => VIEW | OPERATE,
            Self::Admin => VIEW | OPERATE | ADMINISTER,
            Self::Worker => WORK,
        }
    }
}

impl BitOr for Role {
    type Output = Rights;

    fn bitor(self, other: Self) -> Rights {
        Rights::from(self) | other
    }
}

/// The permissions of a visitor, as a set.
///
/// ```
/// use delayline_web::{Rights, Role};
///
/// let rights = Role::Operator | Role::Worker;
/// assert!(rights.include(Role::Viewer) && rights.include(Role::Worker));
/// assert!(!Rights::from(Role::Admin).include(Role::Worker));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// No rights.
    pub const NONE: Self = Self(0);

    /// Returns `true` if the visitor may do all that the role may.
    #[must_use]
    pub const fn include(self, role: Role) -> bool {
        self.0 & role.bits() == role.bits()
    }

    /// The smallest set of roles that have these rights together.
    fn roles(self) -> impl Iterator<Item = Role> {
        let highest = [Role::Admin, Role::Operator, Role::Viewer];
        let highest = highest.into_iter().find(|role| self.include(*role));
        highest.into_iter().chain(Some(Role::Worker).filter(|role| self.include(*role)))
    }
}

impl From<Role> for Rights {
    fn from(role: Role) -> Self {
        Self(role.bits())
    }
}

impl<R: Into<Self>> BitOr<R> for Rights {
    type Output = Self;

    fn bitor(self, other: R) -> Self {
        Self(self.0 | other.into().0)
    }
}

/// `operator and worker`.
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, role) in self.roles().enumerate() {
            f.write_str(if number > 0 { " and " } else { "" })?;
            f.write_str(role.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.roles()).finish()
    }
}

const VIEW: u8 = 1;
const OPERATE: u8 = 2;
const ADMINISTER: u8 = 4;
const WORK: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_sets() {
        let all = [Role::Viewer, Role::Operator, Role::Admin, Role::Worker];
        for (rights, included, shown) in [
            (Rights::NONE, &all[..0], ""),
            (Role::Viewer.into(), &all[..1], "viewer"),
            (Role::Operator.into(), &all[..2], "operator"),
            (Role::Admin.into(), &all[..3], "admin"),
            (Role::Worker.into(), &all[3..], "worker"),
            (Role::Worker | Role::Viewer, &[Role::Viewer, Role::Worker], "viewer and worker"),
            (Role::Viewer | Role::Admin | Role::Worker, &all[..], "admin and worker"),
        ] {
            let has: Vec<Role> = all.into_iter().filter(|role| rights.include(*role)).collect();
            assert_eq!((&has[..], rights.to_string().as_str()), (included, shown));
        }
    }
}
