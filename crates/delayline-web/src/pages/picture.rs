//! The picture of the line of time: lateness, deliveries and depth above one axis.

use delayline::Timestamp;
use delayline::admin::{Stats, Totals};
use delayline_chart::{Scale, Svg, hatching, instants, line, outline, percent, short};
use delayline_json::{Past, Span, Step, lateness_within, part_of};
use maud::{Markup, PreEscaped, html};

use super::parts::number;
use crate::ids::encoded;
use crate::when::zone;

/// What the picture of a queue shows.
pub(super) struct Line<'a> {
    pub(super) queue: &'a str,
    pub(super) span: Span,
    pub(super) now: Timestamp,
    pub(super) stats: &'a Stats,
    pub(super) steps: &'a [Step],
    /// Messages that fall due after the last step. `None` if it is unknown what falls due.
    pub(super) later: Option<u64>,
    /// Instants of schedules that send to the queue, and the names of these schedules.
    pub(super) marks: &'a [(Timestamp, String)],
    /// Whether no listed worker handles the queue, and nothing was taken lately.
    pub(super) has_no_worker: bool,
}

/// A span in words, the time of a step, and the times between the names of the axis, of which every
/// one or only the longer ones are named.
pub(super) const fn words(span: Span) -> (&'static str, &'static str, [u64; 2]) {
    match span {
        Span::Hour => ("hour", "min", [15, 30]),
        Span::SixHours => ("six hours", "6 min", [60, 180]),
        Span::Day => ("24 hours", "h", [360, 720]),
        Span::Month => ("31 days", "12 h", [10_080, 20_160]),
    }
}

/// A part of the picture: its upper and lower edge.
#[derive(Clone, Copy)]
struct Panel {
    top: f64,
    base: f64,
}

const LATE: Panel = Panel { top: 36.0, base: 92.0 };
const FLOW: Panel = Panel { top: 124.0, base: 284.0 };
const DEPTH: Panel = Panel { top: 316.0, base: 376.0 };
const HEIGHT: f64 = 400.0;
/// The panels from above, each with its scale and how that names its ticks.
type Scales = [(Panel, Scale, fn(f64) -> String); 3];

/// Why nothing may be delivered, if it is only known that no worker is listed.
pub(super) const NO_WORKER: &str = "no listed worker";

/// The width of the coordinates of lines, which are stretched.
const WIDE: f64 = 1_000.0;

impl Line<'_> {
    pub(super) fn of(&self) -> String {
        encoded(self.queue.as_bytes())
    }

    pub(super) fn pasts(&self) -> impl Iterator<Item = (usize, &Past)> {
        self.steps.iter().enumerate().filter_map(|(n, step)| Some((n, step.past.as_ref()?)))
    }

    pub(super) fn dues(&self) -> impl Iterator<Item = (usize, u64)> {
        self.steps.iter().enumerate().filter_map(|(n, step)| Some((n, step.due?)))
    }

    /// The names of the ticks, and the field next to them.
    pub(super) fn draw(&self) -> Markup {
        let scales = self.scales();
        html! {
            (PreEscaped(axis(&scales)))
            (PreEscaped(self.field(&scales, words(self.span).1)))
        }
    }

    /// The scales of the panels, from above.
    fn scales(&self) -> Scales {
        let late = self.pasts().filter_map(|(_, past)| past.p99).map(late_ms).fold(100.0, f64::max);
        let handled = self
            .pasts()
            .map(|(_, it)| stack(it).iter().fold(0_u64, |sum, it| sum.saturating_add(it.1)));
        let most = handled.chain(self.dues().map(|it| it.1)).max().unwrap_or_default();
        let waiting = self.stats.scheduled.saturating_add(self.stats.ready);
        let depth = self.pasts().map(|(_, past)| past.waiting).fold(waiting, u64::max);
        [
            (LATE, Scale::tens(1.0, late), latency as fn(f64) -> String),
            (FLOW, Scale::counts(most, 4), short),
            (DEPTH, Scale::counts(depth, 2), short),
        ]
        .map(|(panel, scale, name)| (panel, scale.between(panel.base, panel.top), name))
    }

    fn field(&self, scales: &Scales, step: &str) -> String {
        let mut svg = Svg::default();
        svg.open("svg", &[("class", &"field"), ("height", &HEIGHT)]);
        hatching(&mut svg, "hatch", "hatch");
        for (_, scale, _) in scales {
            for tick in scale.ticks() {
                let class = if scale.ticks().first() == Some(tick) { "base" } else { "grid" };
                svg.level(class, scale.place(*tick));
            }
        }
        self.times(&mut svg);
        self.stops(&mut svg);
        self.limit(&mut svg, &scales[1].1);
        self.bars(&mut svg, &scales[1].1);
        self.lines(&mut svg, scales);
        for (y, past, ahead) in [
            (LATE.top, "lateness", ""),
            (FLOW.top, &*format!("handled per {step}"), "falls due"),
            (DEPTH.top, "waiting", ""),
        ] {
            svg.label("name", (0.0, y - 10.0), "start", past);
            if !ahead.is_empty() {
                svg.label("name ahead", (1.0, y - 10.0), "end", ahead);
            }
        }
        let now = self.place(self.now);
        svg.upright("now", now, (16.0, DEPTH.base)).label("now", (now, 11.0), "middle", "now");
        for (at, name) in self.marks {
            let x = percent(self.place(*at));
            svg.open("circle", &[("class", &"mark"), ("cx", &x), ("cy", &FLOW.base), ("r", &3.5)]);
            svg.words("title", &[], format!("{name}: {} {}", zone().day(*at), zone().clock(*at)));
            svg.close();
        }
        self.hits(&mut svg);
        svg.finish()
    }

    /// The part of the width at which an instant stands.
    fn place(&self, at: Timestamp) -> f64 {
        let from = self.steps.first().map_or(0, |it| it.from.as_ms());
        let length = part_of(self.span).as_ms() * u64::try_from(self.steps.len()).unwrap_or(1);
        ratio(at.as_ms().saturating_sub(from), length.max(1)).min(1.0)
    }

    /// The edges of a step as parts of the width.
    fn edges(&self, step: usize) -> (f64, f64) {
        let count = as_f64(self.steps.len().max(1));
        (as_f64(step) / count, as_f64(step + 1) / count)
    }

    fn times(&self, svg: &mut Svg) {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return };
        let offset = |ms| Timestamp::from_ms(ms).map_or(0, |at| zone().offset_ms(at));
        let [short, long] = words(self.span).2.map(|minutes| {
            instants(first.from.as_ms(), last.until.as_ms(), minutes * 60_000, offset)
        });
        for ms in short {
            let Ok(at) = Timestamp::from_ms(ms) else { continue };
            let place = self.place(at);
            svg.upright("grid", place, (LATE.top, DEPTH.base));
            let clock = zone().clock(at);
            let is_day = self.span == Span::Month || clock == "00:00";
            let name = if is_day { zone().day(at) } else { clock };
            let class = if long.contains(&ms) { "tick" } else { "tick minor" };
            if (0.03..=0.97).contains(&place) {
                svg.label(class, (place, HEIGHT - 6.0), "middle", &name);
            }
        }
    }

    /// When nothing was delivered although messages were due, and why nothing will be.
    fn stops(&self, svg: &mut Svg) {
        let hatched = |svg: &mut Svg, from: f64, until: f64| {
            svg.column(("fill", "url(#hatch)"), (from, until), (FLOW.top, FLOW.base), "");
        };
        for (step, _) in self.pasts().filter(|(_, past)| past.is_stalled) {
            let (from, until) = self.edges(step);
            hatched(svg, from, until);
        }
        let Some((until, why)) = self.stopped() else { return };
        let now = self.place(self.now);
        hatched(svg, now, until.map_or(1.0, |until| self.place(until)));
        svg.label("why", (now + 0.01, FLOW.top + 14.0), "start", &why);
    }

    /// Why nothing is delivered from now on, as far as known, and until when if that is known.
    pub(super) fn stopped(&self) -> Option<(Option<Timestamp>, String)> {
        match self.stats.limits.held_until {
            _ if self.stats.paused => Some((None, "paused".to_owned())),
            Some(until) => Some((Some(until), format!("held until {}", zone().clock(until)))),
            None if self.has_no_worker => Some((None, NO_WORKER.to_owned())),
            None => None,
        }
    }

    /// How many deliveries the rate limit allows in a step, if that is on the scale.
    fn limit(&self, svg: &mut Svg, scale: &Scale) {
        let Some(rate) = self.stats.limits.rate else { return };
        let per_ms = f64::from(rate.count) / rate.per().as_secs_f64() / 1_000.0;
        let most = per_ms * ratio(part_of(self.span).as_ms(), 1);
        if scale.ticks().last().is_some_and(|last| most <= *last) {
            svg.level("limit", scale.place(most));
        }
    }

    fn bars(&self, svg: &mut Svg, scale: &Scale) {
        let mut bar = |step: usize, class: &str, below: u64, count: u64| {
            let (left, right) = self.edges(step);
            let gap = (right - left) * 0.12;
            let base = scale.place(ratio(below, 1));
            // What there is can be seen, however little it is.
            let top = scale.place(ratio(below.saturating_add(count), 1)).min(base - 1.5);
            svg.column(("class", class), (left + gap, right - gap), (top, base), "");
        };
        for (n, step) in self.steps.iter().enumerate() {
            let mut below = 0_u64;
            for (class, count) in
                step.past.as_ref().map(stack).into_iter().flatten().filter(|it| it.1 > 0)
            {
                bar(n, class, below, count);
                below = below.saturating_add(count);
            }
            if let Some(count) = step.due.filter(|count| *count > 0) {
                bar(n, "due", below, count);
            }
        }
    }

    fn lines(&self, svg: &mut Svg, scales: &Scales) {
        let [(_, lateness, _), _, (_, waiting, _)] = scales;
        let late_at = |of: fn(&Past) -> Option<usize>| {
            self.pasts().map(move |(n, past)| {
                let (left, right) = self.edges(n);
                of(past)
                    .map(|it| ((left + right) / 2.0 * WIDE, lateness.place(late_ms(it)) - LATE.top))
            })
        };
        let now = self.place(self.now);
        let waited = self.pasts().map(|(n, past)| {
            let (left, right) = self.edges(n);
            (left * WIDE, right.min(now) * WIDE, waiting.place(ratio(past.waiting, 1)) - DEPTH.top)
        });
        let waited: Vec<_> = waited.collect();
        // As if ready messages were delivered in this step, and others in the step in which they
        // fall due.
        let mut rest = self.stats.scheduled.saturating_add(self.stats.ready);
        let mut ready = self.stats.ready;
        let ahead = self.dues().map(|(n, due)| {
            let (left, right) = self.edges(n);
            let at =
                (left.max(now) * WIDE, right * WIDE, waiting.place(ratio(rest, 1)) - DEPTH.top);
            rest = rest.saturating_sub(due.saturating_add(std::mem::take(&mut ready)));
            at
        });
        let ahead: Vec<_> = ahead.collect();
        let stairs = |all: &[(f64, f64, f64)]| {
            // Steps of one height are one line.
            let flat = all.chunk_by(|one, other| (one.2 - other.2).abs() < 0.01);
            let ends = flat.filter_map(|it| Some((it.first()?, it.last()?)));
            line(ends.flat_map(|(first, last)| [Some((first.0, first.2)), Some((last.1, first.2))]))
        };
        let base = DEPTH.base - DEPTH.top;
        let late = [("p99", line(late_at(|it| it.p99))), ("p50", line(late_at(|it| it.p50)))];
        let depth = [
            ("depth area", outline(base, waited.iter().copied())),
            ("depth", stairs(&waited)),
            ("depth ahead", stairs(&ahead)),
        ];
        svg.stretched(WIDE, (LATE.top, LATE.base), &late);
        svg.stretched(WIDE, (DEPTH.top, DEPTH.base), &depth);
    }

    /// A field above each step, with its figures as a tooltip and a link to its messages.
    fn hits(&self, svg: &mut Svg) {
        for (n, step) in self.steps.iter().enumerate() {
            let link = self.link(step);
            if let Some(link) = &link {
                // The table has the same links, for keyboards and readers of screens.
                svg.open("a", &[("href", link), ("tabindex", &"-1")]);
            }
            svg.column(("class", "hit"), self.edges(n), (LATE.top, DEPTH.base), &told(step));
            if link.is_some() {
                svg.close();
            }
        }
    }

    /// A link to the messages that fall due in a step, or that died in it.
    pub(super) fn link(&self, step: &Step) -> Option<String> {
        let instant = |at: Timestamp| encoded(at.to_string().as_bytes());
        let (from, until, of) = (instant(step.from), instant(step.until), self.of());
        if step.due.is_some_and(|due| due > 0) {
            return Some(format!("messages?queue={of}&state=scheduled&from={from}&until={until}"));
        }
        let died = step.past.as_ref().is_some_and(|past| past.died > 0);
        died.then(|| format!("dead?queue={of}&died_after={from}&died_before={until}"))
    }
}

/// The names of the ticks, next to the field.
fn axis(scales: &Scales) -> String {
    let mut svg = Svg::default();
    svg.open("svg", &[("class", &"axis"), ("height", &HEIGHT)]);
    for (panel, scale, name) in scales {
        let room = (panel.base - panel.top) / 15.0;
        let every = (as_f64(scale.ticks().len()) / room).ceil().max(1.0);
        for (n, tick) in scale.ticks().iter().enumerate() {
            if as_f64(n) % every == 0.0 {
                svg.label("", (1.0, scale.place(*tick) + 4.0), "end", &name(*tick));
            }
        }
    }
    svg.finish()
}

/// What the deliveries of a step became, from below.
fn stack(past: &Past) -> [(&'static str, u64); 3] {
    let other = past.delivered.saturating_sub(past.acked).saturating_sub(past.failed);
    [("acked", past.acked), ("other", other), ("failed", past.failed)]
}

/// When a step is: `3 Mar 14:00 to 14:06`.
pub(super) fn time(step: &Step) -> String {
    let zone = zone();
    format!("{} {} to {}", zone.day(step.from), zone.clock(step.from), zone.clock(step.until))
}

fn told(step: &Step) -> String {
    let mut told = time(step);
    if let Some(past) = &step.past {
        told += &format!(
            "\n{} sent, {} delivered, {} acked, {} failed, {} died\n{} waiting",
            number(past.sent),
            number(past.delivered),
            number(past.acked),
            number(past.failed),
            number(past.died),
            number(past.waiting)
        );
        if let (Some(p50), Some(p99)) = (past.p50, past.p99) {
            told +=
                &format!("\nlate: 50 % {}, 99 % {}", lateness_within(p50), lateness_within(p99));
        }
    }
    if let Some(due) = step.due {
        told += &format!("\n{} fall due", number(due));
    }
    told
}

/// The bound of a bucket in ms; twice that of the last bound for the bucket without one.
fn late_ms(bucket: usize) -> f64 {
    let bound = Totals::lateness_bound(bucket).map(|it| it.as_secs_f64() * 1_000.0);
    bound.unwrap_or(65_536.0)
}

pub(super) fn latency(ms: f64) -> String {
    if ms < 1_000.0 { format!("{} ms", short(ms)) } else { format!("{} s", short(ms / 1_000.0)) }
}

#[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
pub(super) const fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of as f64
}

#[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
pub(super) const fn as_f64(count: usize) -> f64 {
    count as f64
}
