//! Elements, and the paths of lines.

use std::fmt::{self, Display, Write as _};

/// Elements of SVG as text, one after the other. Texts and values are escaped, so that no text can
/// leave its element.
#[derive(Clone, Debug, Default)]
pub struct Svg {
    text: String,
    open: Vec<&'static str>,
}

/// An attribute: its name and value.
type Attribute<'a> = (&'a str, &'a dyn Display);

impl Svg {
    /// Begins an element. What follows is inside of it, until [`close`](Self::close).
    pub fn open(&mut self, name: &'static str, attributes: &[Attribute<'_>]) -> &mut Self {
        self.tag(name, attributes);
        self.text.push_str(">\n");
        self.open.push(name);
        self
    }

    /// Ends the element that was begun last.
    pub fn close(&mut self) -> &mut Self {
        if let Some(name) = self.open.pop() {
            self.text.push_str("</");
            self.text.push_str(name);
            self.text.push_str(">\n");
        }
        self
    }

    /// Writes an element without content.
    pub fn leaf(&mut self, name: &'static str, attributes: &[Attribute<'_>]) -> &mut Self {
        self.tag(name, attributes);
        self.text.push_str("/>\n");
        self
    }

    /// Writes an element that has only text, such as `text` or `title`.
    pub fn words(
        &mut self,
        name: &'static str,
        attributes: &[Attribute<'_>],
        words: impl Display,
    ) -> &mut Self {
        self.tag(name, attributes);
        self.text.push('>');
        self.escaped(&words);
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push_str(">\n");
        self
    }

    /// Writes a text at a part of the width; `anchor` is `start`, `middle` or `end`.
    pub fn label(&mut self, class: &str, at: (f64, f64), anchor: &str, words: &str) -> &mut Self {
        let (x, y) = (percent(at.0), number(at.1));
        let place: [Attribute<'_>; 4] =
            [("class", &class), ("x", &x), ("y", &y), ("text-anchor", &anchor)];
        self.words("text", &place, words)
    }

    /// Writes a horizontal line over the whole width.
    pub fn level(&mut self, class: &str, y: f64) -> &mut Self {
        let y = number(y);
        let ends: [Attribute<'_>; 4] = [("x1", &0), ("x2", &"100%"), ("y1", &y), ("y2", &y)];
        self.leaf("line", &[&[("class", &class as &dyn Display)], &ends[..]].concat())
    }

    /// Writes a vertical line at a part of the width.
    pub fn upright(&mut self, class: &str, part: f64, (top, base): (f64, f64)) -> &mut Self {
        let x = percent(part);
        let ends: [Attribute<'_>; 4] = [("x1", &x), ("x2", &x), ("y1", &top), ("y2", &base)];
        self.leaf("line", &[&[("class", &class as &dyn Display)], &ends[..]].concat())
    }

    /// Writes a rectangle between two parts of the width. It has an attribute, such as a class or a
    /// fill, and a tooltip if that is not empty.
    pub fn column(
        &mut self,
        attribute: (&str, &str),
        (left, right): (f64, f64),
        (top, base): (f64, f64),
        title: &str,
    ) -> &mut Self {
        let (x, width) = (percent(left), percent((right - left).max(0.0)));
        let (y, height) = (number(top), number(base - top));
        let all: [Attribute<'_>; 5] = [
            (attribute.0, &attribute.1),
            ("x", &x),
            ("y", &y),
            ("width", &width),
            ("height", &height),
        ];
        match title.is_empty() {
            true => self.leaf("rect", &all),
            false => self.open("rect", &all).words("title", &[], title).close(),
        }
    }

    /// Writes paths whose coordinates reach from 0 to `wide`, stretched to the whole width. Each
    /// has a class; empty ones are left out.
    pub fn stretched(
        &mut self,
        wide: f64,
        (top, base): (f64, f64),
        paths: &[(&str, String)],
    ) -> &mut Self {
        let (height, view) = (base - top, format!("0 0 {wide} {}", base - top));
        let size: [Attribute<'_>; 3] = [("y", &top), ("width", &"100%"), ("height", &height)];
        let stretch: [Attribute<'_>; 2] = [("viewBox", &view), ("preserveAspectRatio", &"none")];
        self.open("svg", &[&size[..], &stretch[..]].concat());
        for (class, path) in paths.iter().filter(|(_, path)| !path.is_empty()) {
            self.leaf("path", &[("class", class), ("d", path)]);
        }
        self.close()
    }

    /// Ends all elements, and returns the text.
    #[must_use]
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }

    fn tag(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        self.text.push('<');
        self.text.push_str(name);
        for (name, value) in attributes {
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.escaped(value);
            self.text.push('"');
        }
    }

    fn escaped(&mut self, value: &dyn Display) {
        // Writing to a text cannot fail.
        let _ = write!(Escaping(&mut self.text), "{value}");
    }
}

/// Writes text without the characters that mean something in XML and HTML.
struct Escaping<'a>(&'a mut String);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

/// A part of a width as a value of an attribute: `12.5%`.
#[must_use]
pub fn percent(part: f64) -> String {
    format!("{}%", number(part * 100.0))
}

/// Up to three digits after the point, and none that say nothing.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The path of a line through points. A point that is missing leaves a gap; a point alone is a dot,
/// if line ends are round.
#[must_use]
pub fn line(points: impl IntoIterator<Item = Option<(f64, f64)>>) -> String {
    let (mut path, mut is_drawn) = (String::new(), false);
    let mut points = points.into_iter().peekable();
    while let Some(point) = points.next() {
        if let Some((x, y)) = point {
            let kind = if is_drawn { 'L' } else { 'M' };
            let _ = write!(path, "{kind}{} {}", number(x), number(y));
            if !is_drawn && points.peek().is_none_or(Option::is_none) {
                path.push_str("h0");
            }
        }
        is_drawn = point.is_some();
    }
    path
}

/// The path around columns that stand side by side on a base: for each its left edge, right edge
/// and top. Columns without height are left out.
#[must_use]
pub fn outline(base: f64, columns: impl IntoIterator<Item = (f64, f64, f64)>) -> String {
    let (mut path, mut end) = (String::new(), None);
    for (left, right, top) in columns.into_iter().filter(|(_, _, top)| *top < base) {
        if end != Some(left) {
            if end.is_some() {
                let _ = write!(path, "V{}", number(base));
            }
            let _ = write!(path, "M{} {}", number(left), number(base));
        }
        let _ = write!(path, "V{}H{}", number(top), number(right));
        end = Some(right);
    }
    if end.is_some() {
        let _ = write!(path, "V{}", number(base));
    }
    path
}

/// Defines hatching, for shapes whose `fill` is `url(#id)`. The lines have a class, so that a page
/// colours them.
pub fn hatching(svg: &mut Svg, id: &str, class: &str) {
    let size: &dyn Display = &7;
    svg.open("defs", &[]);
    svg.open(
        "pattern",
        &[
            ("id", &id),
            ("width", size),
            ("height", size),
            ("patternUnits", &"userSpaceOnUse"),
            ("patternTransform", &"rotate(45)"),
        ],
    );
    svg.leaf("path", &[("class", &class), ("d", &"M0 0V7")]);
    svg.close().close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_element() {
        let hostile = "</title><script a=\"1\">&";
        let mut svg = Svg::default();
        svg.open("svg", &[("aria-label", &hostile)]).words(
            "title",
            &[("class", &hostile)],
            hostile,
        );
        hatching(&mut svg, "h", "lines");
        svg.open("g", &[]);
        let text = svg.finish();
        assert!(!text.contains("<script") && !text.contains("a=\"1"), "{text}");
        let escaped = "&lt;/title&gt;&lt;script a=&quot;1&quot;&gt;&amp;";
        assert_eq!(text.matches(escaped).count(), 3, "{text}");
        assert!(text.ends_with("<g>\n</g>\n</svg>\n") && text.contains("</pattern>\n</defs>\n"));
        assert!(Svg::default().close().clone().finish().is_empty());
    }

    #[test]
    fn numbers_have_no_digits_that_say_nothing() {
        assert_eq!(
            [0.5, 1.0 / 3.0, -0.000_001, 1.0].map(percent),
            ["50%", "33.333%", "0%", "100%"]
        );
    }

    #[test]
    fn places_are_parts_of_the_width() {
        let mut svg = Svg::default();
        svg.level("grid", 10.04).upright("now", 0.25, (1.0, 9.0)).label(
            "a",
            (0.5, 2.0),
            "end",
            "<",
        );
        svg.column(("fill", "url(#h)"), (0.25, 0.75), (2.0, 8.5), "");
        svg.column(("class", "hit"), (0.5, 0.25), (0.0, 1.0), "a\nb");
        svg.stretched(100.0, (5.0, 7.0), &[("p", "M0 0".to_owned()), ("q", String::new())]);
        let expected = "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"10.04\" y2=\"10.04\"/>
<line class=\"now\" x1=\"25%\" x2=\"25%\" y1=\"1\" y2=\"9\"/>
<text class=\"a\" x=\"50%\" y=\"2\" text-anchor=\"end\">&lt;</text>
<rect fill=\"url(#h)\" x=\"25%\" y=\"2\" width=\"50%\" height=\"6.5\"/>
<rect class=\"hit\" x=\"50%\" y=\"0\" width=\"0%\" height=\"1\">
<title>a
b</title>
</rect>
<svg y=\"5\" width=\"100%\" height=\"2\" viewBox=\"0 0 100 2\" preserveAspectRatio=\"none\">
<path class=\"p\" d=\"M0 0\"/>
</svg>
";
        assert_eq!(svg.finish(), expected);
    }

    #[test]
    fn a_line_has_the_gaps_of_its_points() {
        let at = |x: f64| Some((x, 10.0 - x));
        assert_eq!(line([at(0.0), at(1.5), None, at(3.0), None]), "M0 10L1.5 8.5M3 7h0");
        assert_eq!(line([None, at(1.0)]), "M1 9h0");
        assert_eq!(line([]), "");
    }

    #[test]
    fn columns_side_by_side_have_one_outline() {
        let columns = [(0.0, 1.0, 4.0), (1.0, 2.0, 2.0), (2.0, 3.0, 9.0), (3.0, 4.0, 1.0)];
        assert_eq!(outline(9.0, columns), "M0 9V4H1V2H2V9M3 9V1H4V9");
        assert_eq!(outline(9.0, [(0.0, 1.0, 9.0)]), "");
    }
}
