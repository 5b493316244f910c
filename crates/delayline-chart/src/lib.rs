//! Scales, ticks and shapes of charts, as SVG text.
//!
//! [`Scale`] places figures and has round ticks, [`instants`] has those of a time axis, and
//! [`short`] writes figures. [`Svg`] writes elements and escapes texts. Nothing here has a colour
//! or a font: a page gives classes, and a file for other pages gives attributes. No element has a
//! `style`, which a strict content security policy refuses.
//!
//! A page is as wide as its window, and letters must not be stretched. So it writes horizontal
//! places in [percent], draws [lines](fn@line) in a separate `svg` with `preserveAspectRatio`
//! `none`, and texts outside of it.
//!
//! ```
//! use delayline_chart::{Scale, Svg, percent};
//!
//! let counts = [3_u32, 0, 7];
//! let scale = Scale::even(0.0, 7.0, 4).between(100.0, 0.0);
//! let mut svg = Svg::default();
//! svg.open("svg", &[("width", &"100%"), ("height", &100)]);
//! for (number, count) in (0_u32..).zip(counts) {
//!     let top = scale.place(f64::from(count));
//!     let x = percent(f64::from(number) / 3.0);
//!     svg.leaf("rect", &[("x", &x), ("y", &top), ("width", &"30%"), ("height", &(100.0 - top))]);
//! }
//! assert!(svg.finish().contains(r#"<rect x="66.667%" y="12.5" width="30%" height="87.5"/>"#));
//! ```

mod scale;
mod svg;

pub use scale::{Scale, instants, short};
pub use svg::{Svg, hatching, line, outline, percent};
