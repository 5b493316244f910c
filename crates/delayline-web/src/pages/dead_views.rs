//! The views of dead letters, and their order in a query.

use delayline_admin::GroupOrder;
use maud::{Markup, html};

use crate::failure::Failure;
use crate::params::Params;

/// Whether the list begins with the latest death.
pub(super) fn newest_first(params: &Params) -> Result<bool, Failure> {
    match params.text("order") {
        None | Some("oldest") => Ok(false),
        Some("newest") => Ok(true),
        Some(_) => Err(Failure::Wrong("`order` is newest or oldest".to_owned())),
    }
}

/// The order as the rest of a query.
pub(super) const fn order_query(newest: bool) -> &'static str {
    if newest { "&order=newest" } else { "" }
}

/// Links to the views of dead letters: lists with the filter of a query, and groups.
pub(super) fn views(
    of: &str,
    list: Option<GroupOrder>,
    group: Option<GroupOrder>,
    rest: &str,
) -> Markup {
    let link = |href: String, is_here: bool, text: &str| {
        html! { a href=(href) aria-current=[is_here.then_some("true")] { (text) } }
    };
    html! {
        nav.tabs aria-label="Views of dead letters" {
            @for (order, text) in
                [(GroupOrder::Oldest, "Oldest first"), (GroupOrder::Newest, "Newest first")]
            {
                @let newest = order_query(order == GroupOrder::Newest);
                (link(format!("dead?queue={of}{rest}{newest}"), list == Some(order), text))
            }
            @for (order, text) in [
                (GroupOrder::Newest, "By error, newest"),
                (GroupOrder::Oldest, "By error, oldest"),
                (GroupOrder::Largest, "By error, largest"),
            ] {
                (link(format!("groups?queue={of}&order={}", order.name()), group == Some(order), text))
            }
        }
    }
}
