//! What a source defines, imports and names.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A module, in a separate file or within one.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Its source.
    pub(super) file: String,
    defined: BTreeSet<String>,
    /// What `use` calls otherwise than its last part, or by it.
    pub(super) aliases: BTreeMap<String, Vec<String>>,
    /// The modules of which all is imported.
    pub(super) globs: Vec<Vec<String>>,
    /// Names that are imported and not re-exported.
    pub(super) imported: Vec<Vec<String>>,
    /// The paths of expressions, types and patterns.
    pub(super) named: BTreeSet<Vec<String>>,
}

impl Module {
    pub(super) fn defines(&self, name: &str) -> bool {
        self.defined.contains(name)
    }
}

/// Adds the module of a file, and those within it, to `modules`.
pub(super) fn read(
    file: &str,
    path: Vec<String>,
    tokens: TokenStream,
    modules: &mut BTreeMap<Vec<String>, Module>,
) {
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut rest = &tokens[..];
    while let Some((first, after)) = rest.split_first() {
        rest = match (word(first).as_deref(), after) {
            _ if is_for_tests(rest) => after_item(&rest[2..]),
            (Some("mod"), [TokenTree::Ident(name), TokenTree::Group(body), after @ ..]) => {
                let mut inner = path.clone();
                inner.push(name.to_string());
                read(file, inner, body.stream(), modules);
                after
            }
            (Some("mod"), [TokenTree::Ident(_), after @ ..]) => after,
            (Some("macro_rules"), [_, TokenTree::Ident(name), after @ ..]) => {
                module.defined.insert(name.to_string());
                after
            }
            (Some(kind), [TokenTree::Ident(name), after @ ..]) if DEFINE.contains(&kind) => {
                // `const fn` defines the function.
                if DEFINE.contains(&name.to_string().as_str()) {
                    &rest[1..]
                } else {
                    module.defined.insert(name.to_string());
                    after
                }
            }
            _ => module.take(rest),
        };
    }
    modules.insert(path, module);
}

/// The keywords before a name that they define.
const DEFINE: &[&str] = &["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

impl Module {
    /// Reads a `use`, a path, a group or anything else at the beginning of `tokens`. Returns the
    /// rest.
    fn take<'a>(&mut self, tokens: &'a [TokenTree]) -> &'a [TokenTree] {
        let Some((first, after)) = tokens.split_first() else { return tokens };
        match first {
            TokenTree::Ident(name) if *name == "pub" => match after {
                [TokenTree::Group(_), TokenTree::Ident(next), tree @ ..] if *next == "use" => {
                    self.import(tree, false)
                }
                [TokenTree::Ident(next), tree @ ..] if *next == "use" => self.import(tree, false),
                _ => after,
            },
            TokenTree::Ident(name) if *name == "use" => self.import(after, true),
            TokenTree::Ident(_) => {
                let (path, rest) = path(tokens);
                self.named.insert(path);
                rest
            }
            TokenTree::Group(group) => {
                self.take_all(group);
                after
            }
            // A field or method is no path.
            TokenTree::Punct(punct) if punct.as_char() == '.' => match after {
                [TokenTree::Ident(_), rest @ ..] => rest,
                _ => after,
            },
            _ => after,
        }
    }

    fn take_all(&mut self, group: &Group) {
        let tokens: Vec<_> = group.stream().into_iter().collect();
        let mut rest = &tokens[..];
        while !rest.is_empty() {
            rest = if is_for_tests(rest) { after_item(&rest[2..]) } else { self.take(rest) };
        }
    }

    /// Reads the tree of a `use` up to its semicolon.
    fn import<'a>(&mut self, tokens: &'a [TokenTree], used: bool) -> &'a [TokenTree] {
        let end = tokens.iter().position(|it| is_punct(it, ';')).unwrap_or(tokens.len());
        self.import_tree(&[], &tokens[..end], used);
        tokens.get(end + 1..).unwrap_or_default()
    }

    fn import_tree(&mut self, prefix: &[String], tree: &[TokenTree], used: bool) {
        let (parts, rest) = path(tree);
        let whole = [prefix, &parts].concat();
        match rest {
            [TokenTree::Group(group)] if group.delimiter() == Delimiter::Brace => {
                let tokens: Vec<_> = group.stream().into_iter().collect();
                for branch in tokens.split(|it| is_punct(it, ',')).filter(|it| !it.is_empty()) {
                    self.import_tree(&whole, branch, used);
                }
            }
            [star] if is_punct(star, '*') => self.globs.push(whole),
            [TokenTree::Ident(_), TokenTree::Ident(name)] => {
                self.alias(&name.to_string(), whole, used);
            }
            _ => {
                let mut whole = whole;
                if parts == ["self"] && whole.len() > 1 {
                    whole.pop();
                }
                if let Some(name) = whole.last().cloned() {
                    self.alias(&name, whole, used);
                }
            }
        }
    }

    fn alias(&mut self, name: &str, path: Vec<String>, used: bool) {
        if used {
            self.imported.push(path.clone());
        }
        self.aliases.insert(name.to_owned(), path);
    }
}

/// The names at the beginning, as far as `::` joins them, and what follows.
fn path(tokens: &[TokenTree]) -> (Vec<String>, &[TokenTree]) {
    let mut parts = Vec::new();
    let mut rest = tokens;
    while let [TokenTree::Ident(name), after @ ..] = rest {
        // `a as b` has two names and no colons.
        parts.push(name.to_string());
        rest = after;
        match after {
            [one, two, next @ ..] if is_punct(one, ':') && is_punct(two, ':') => rest = next,
            _ => break,
        }
    }
    (parts, rest)
}

/// `#[cfg(test)]`, or more that only tests have.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let [hash, TokenTree::Group(attribute), ..] = tokens else { return false };
    let mut inner = attribute.stream().into_iter();
    let (Some(name), Some(TokenTree::Group(condition))) = (inner.next(), inner.next()) else {
        return false;
    };
    let has = |word: &str| condition.stream().into_iter().any(|it| it.to_string() == word);
    is_punct(hash, '#') && name.to_string() == "cfg" && has("test") && !has("not")
}

/// What follows the item at the beginning.
fn after_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let ends = |it: &TokenTree| match it {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        other => is_punct(other, ';'),
    };
    let end = tokens.iter().position(ends).map_or(tokens.len(), |at| at + 1);
    &tokens[end..]
}

fn word(token: &TokenTree) -> Option<String> {
    if let TokenTree::Ident(name) = token { Some(name.to_string()) } else { None }
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}
