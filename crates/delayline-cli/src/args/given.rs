//! Where the value of an option is from.

/// Returns `true` if a value is of the command line, and not of its variable, which other commands
/// may need.
pub(super) fn is_given(value: Option<&str>, variable: &str) -> bool {
    value.is_some_and(|value| std::env::var_os(variable).is_none_or(|of_it| of_it != value))
}
