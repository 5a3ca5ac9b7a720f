//! Finds which file of src/ imports which other one, also within a layer.
//!
//! A name that a `mod.rs` re-exports belongs to the file that defines it. Code under `cfg(test)` is left out.

use super::{code_of, files, read};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Names from the root of the crate, without `crate`.
type Module = Vec<String>;

/// `use path as name;`, in a module.
struct Use {
    line: usize,
    module: Module,
    path: Vec<String>,
    name: String,
}

/// A path or a single name outside of `use`.
struct Mention {
    line: usize,
    module: Module,
    path: Vec<String>,
}

struct Source {
    path: PathBuf,
    uses: Vec<Use>,
    mentions: Vec<Mention>,
}

struct Sources {
    all: Vec<Source>,
    modules: HashMap<Module, usize>,
}

/// The files that each file imports, with the lines and names.
pub struct Graph(BTreeMap<String, BTreeMap<String, BTreeSet<(usize, String)>>>);

impl Graph {
    /// The files below src/ without lib.rs, which lists all modules.
    pub fn new() -> Self {
        Self::of(&Sources::read())
    }

    fn of(sources: &Sources) -> Self {
        let is_out = |path: &Path| path == Path::new("src/lib.rs");
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let mut graph = BTreeMap::<_, BTreeMap<_, BTreeSet<_>>>::new();
        for source in &sources.all {
            for (line, target, name) in sources.imports(source) {
                let target = &sources.all[target].path;
                if target != &source.path && !is_out(target) && !is_out(&source.path) {
                    let targets = graph.entry(text(&source.path)).or_default();
                    targets.entry(text(target)).or_default().insert((line, name));
                }
            }
        }
        Self(graph)
    }

    pub fn has(&self, from: &str, to: &str) -> bool {
        self.targets(from).any(|target| target == to)
    }

    /// Number of pairs of files.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    fn targets(&self, path: &str) -> impl Iterator<Item = &str> {
        self.0.get(path).into_iter().flat_map(BTreeMap::keys).map(String::as_str)
    }

    fn reached_from(&self, start: &str) -> BTreeSet<&str> {
        let (mut reached, mut open) = (BTreeSet::new(), self.targets(start).collect::<Vec<_>>());
        while let Some(path) = open.pop() {
            if reached.insert(path) {
                open.extend(self.targets(path));
            }
        }
        reached
    }

    /// The largest sets of files that all import each other, directly or through others.
    pub fn circles(&self) -> BTreeSet<BTreeSet<&str>> {
        let reached: BTreeMap<_, _> =
            self.0.keys().map(|path| (path.as_str(), self.reached_from(path))).collect();
        let mut circles = BTreeSet::new();
        for (path, targets) in &reached {
            let returns = |target: &&str| reached.get(target).is_some_and(|back| back.contains(path));
            let circle: BTreeSet<_> = targets.iter().copied().filter(returns).collect();
            circles.extend((circle.len() > 1).then_some(circle));
        }
        circles
    }

    /// The imports that make a circle, as text.
    pub fn describe(&self, circle: &BTreeSet<&str>) -> String {
        let mut lines = vec![format!("a circle of {} files:", circle.len())];
        for from in circle {
            for (to, names) in self.0[*from].iter().filter(|(to, _)| circle.contains(to.as_str())) {
                let names: Vec<_> = names.iter().map(|(line, name)| format!("{name} ({line})")).collect();
                lines.push(format!("  {from} -> {to}: {}", names.join(", ")));
            }
        }
        lines.join("\n")
    }
}

impl Sources {
    fn read() -> Self {
        let paths = files("src", &["rs"]);
        Self::parse(paths.into_iter().map(|path| (read(&path), code_of(&path), path)).collect())
    }

    /// Text, code and path of each file.
    fn parse(files: Vec<(String, String, PathBuf)>) -> Self {
        let mut places: HashMap<PathBuf, Module> =
            files.iter().map(|(.., path)| (path.clone(), module_of(path))).collect();
        for (text, _, path) in &files {
            for (file, name) in placed_modules(text) {
                let module = [module_of(path), vec![name]].concat();
                places.insert(path.parent().unwrap().join(file), module);
            }
        }
        let (mut all, mut modules) = (Vec::new(), HashMap::new());
        for (_, code, path) in files {
            modules.entry(places[&path].clone()).or_insert(all.len());
            let mut scan = Scan { tokens: tokens(&code), at: 0 };
            let mut source = Source { path, uses: Vec::new(), mentions: Vec::new() };
            scan.file(&places[&source.path], &mut source);
            all.push(source);
        }
        Self { all, modules }
    }

    /// The files that a file imports from, with line and name.
    fn imports(&self, source: &Source) -> Vec<(usize, usize, String)> {
        let lists_modules = source.path.ends_with("mod.rs");
        let mut found = Vec::new();
        for import in &source.uses {
            // The file that lists the modules may only pass a name on.
            let is_own = |mention: &Mention| mention.path.first() == Some(&import.name);
            if lists_modules && !source.mentions.iter().any(is_own) {
                continue;
            }
            if let Some(target) = self.resolve(&import.module, &import.path, 0) {
                found.push((import.line, target, import.path.join("::")));
            }
        }
        for mention in source.mentions.iter().filter(|mention| mention.path.len() > 1) {
            if let Some(target) = self.resolve(&mention.module, &mention.path, 0) {
                found.push((mention.line, target, mention.path.join("::")));
            }
        }
        // A folder stands for none of its files; only the names after it do.
        found.retain(|(_, target, name)| {
            let target = &self.all[*target].path;
            let folder = target.parent().and_then(Path::file_name).and_then(|name| name.to_str());
            !(target.ends_with("mod.rs") && name.rsplit("::").next() == folder)
        });
        found
    }

    /// The file that defines what a path names in a module; none for other crates and for local names.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<usize> {
        assert!(depth < 20, "{path:?} in {module:?} leads in a circle");
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend(Vec::new(), rest, depth),
            "self" => self.descend(module.clone(), rest, depth),
            "super" => {
                let mut outer = module.clone();
                outer.pop();
                match rest.first() {
                    Some(next) if next == "super" => self.resolve(&outer, rest, depth + 1),
                    _ => self.descend(outer, rest, depth),
                }
            }
            _ => {
                let inner = [module.clone(), vec![first.clone()]].concat();
                if self.modules.contains_key(&inner) {
                    return self.descend(inner, rest, depth);
                }
                let import = self.import(module, first)?;
                self.resolve(module, &[&import.path[..], rest].concat(), depth + 1)
            }
        }
    }

    fn descend(&self, mut module: Module, path: &[String], depth: usize) -> Option<usize> {
        let Some((first, rest)) = path.split_first() else { return self.file_of(&module) };
        module.push(first.clone());
        if self.modules.contains_key(&module) {
            return self.descend(module, rest, depth);
        }
        module.pop();
        match self.import(&module, first) {
            Some(import) => self.resolve(&module, &[&import.path[..], rest].concat(), depth + 1),
            None => self.file_of(&module),
        }
    }

    /// The file of a module, which may be an inner one.
    fn file_of(&self, module: &Module) -> Option<usize> {
        (0..=module.len()).rev().find_map(|end| self.modules.get(&module[..end])).copied()
    }

    fn import(&self, module: &Module, name: &str) -> Option<&Use> {
        let source = &self.all[self.file_of(module)?];
        let names = |import: &&Use| import.module == *module && import.name == name;
        // `use smallvec::smallvec` of another crate names itself.
        source.uses.iter().filter(names).find(|import| import.path[0] != name)
    }
}

fn module_of(path: &Path) -> Module {
    let below = path.strip_prefix("src").unwrap().with_extension("");
    let mut names: Module = below.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    names.pop_if(|name| name == "mod" || name == "lib");
    names
}

/// The files and names of `#[path = "file"] mod name;`.
fn placed_modules(text: &str) -> Vec<(String, String)> {
    let places = text.split("#[path = \"").skip(1).filter_map(|rest| {
        let (file, rest) = rest.split_once("\"]")?;
        let name = rest.split_once("mod ")?.1.split_once(';')?.0;
        Some((file.to_owned(), name.to_owned()))
    });
    places.collect()
}

/// Names, `::` and single characters, with their lines.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let (mut found, mut rest, mut line) = (Vec::new(), code, 1);
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if is_word(c) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        if !c.is_whitespace() {
            found.push((line, &rest[..length]));
        }
        line += usize::from(c == '\n');
        rest = &rest[length..];
    }
    found
}

/// Reads the tokens of a file once, from front to back.
struct Scan<'a> {
    tokens: Vec<(usize, &'a str)>,
    at: usize,
}

impl<'a> Scan<'a> {
    fn token(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", |(_, token)| token)
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |(line, _)| *line)
    }

    fn next(&mut self) -> &'a str {
        self.at += 1;
        self.tokens.get(self.at - 1).map_or("", |(_, token)| token)
    }

    fn at_name(&self) -> bool {
        self.token(0).starts_with(|c: char| c.is_alphabetic() || c == '_')
    }

    fn file(&mut self, module: &Module, source: &mut Source) {
        let mut module = module.clone();
        let (mut depth, mut inner) = (0, Vec::new());
        while self.at < self.tokens.len() {
            let previous = self.at.checked_sub(1).map_or("", |at| self.tokens[at].1);
            match self.token(0) {
                "#" if self.token(1) == "[" => {
                    if self.attribute().windows(3).any(|tokens| tokens == ["cfg", "(", "test"]) {
                        self.item();
                    }
                }
                "use" => {
                    self.next();
                    self.tree(&module, &mut Vec::new(), source);
                }
                "mod" if self.token(2) == "{" => {
                    self.next();
                    module.push(self.next().to_owned());
                    inner.push(depth);
                }
                "{" => {
                    depth += 1;
                    self.next();
                }
                "}" => {
                    depth -= 1;
                    self.next();
                    if inner.pop_if(|start| *start == depth).is_some() {
                        module.pop();
                    }
                }
                _ if self.at_name() => {
                    let line = self.line();
                    let path = self.path();
                    if !["::", ".", "fn", "mod"].contains(&previous) {
                        source.mentions.push(Mention { line, module: module.clone(), path });
                    }
                }
                _ => _ = self.next(),
            }
        }
    }

    fn path(&mut self) -> Vec<String> {
        let mut path = vec![self.next().to_owned()];
        while self.token(0) == "::" {
            self.next();
            if !self.at_name() {
                break;
            }
            path.push(self.next().to_owned());
        }
        path
    }

    /// The tokens of an attribute.
    fn attribute(&mut self) -> Vec<&'a str> {
        let (start, mut depth) = (self.at, 0);
        loop {
            match self.next() {
                "[" => depth += 1,
                "]" => depth -= 1,
                "" => break,
                _ => {}
            }
            if depth == 0 && self.at > start + 1 {
                break;
            }
        }
        self.tokens[start..self.at.min(self.tokens.len())].iter().map(|(_, token)| *token).collect()
    }

    /// Leaves out an item: up to its semicolon or its closing brace.
    fn item(&mut self) {
        let mut depth = 0;
        loop {
            match self.next() {
                "{" | "(" => depth += 1,
                ")" => depth -= 1,
                "}" => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                ";" if depth == 0 => break,
                "" => break,
                _ => {}
            }
        }
    }

    /// The names of a `use`, from behind the keyword or a `::`.
    fn tree(&mut self, module: &Module, prefix: &mut Vec<String>, source: &mut Source) {
        let (line, outer) = (self.line(), prefix.len());
        loop {
            match self.next() {
                "::" => continue,
                "{" => {
                    while !["}", ""].contains(&self.token(0)) {
                        self.tree(module, prefix, source);
                        if self.token(0) == "," {
                            self.next();
                        }
                    }
                    self.next();
                    break;
                }
                // `a::{self}` names `a`.
                "self" if outer > 0 => {}
                name => prefix.push(name.to_owned()),
            }
            if self.token(0) == "::" {
                continue;
            }
            let mut name = prefix.last().cloned().unwrap_or_default();
            if self.token(0) == "as" {
                self.next();
                self.next().clone_into(&mut name);
            }
            source.uses.push(Use { line, module: module.clone(), path: prefix.clone(), name });
            break;
        }
        prefix.truncate(outer);
    }
}

#[test]
fn a_circle_through_names_that_are_passed_on_is_found() {
    let files = [
        ("src/a/mod.rs", "mod b; mod c; pub use b::{B, Unused}; fn f() { c::g() }"),
        ("src/a/b.rs", "use super::c::{self, C as D}; struct B; #[cfg(test)] mod tests { use crate::d::X; }"),
        ("src/a/c.rs", "fn g(_: super::B) {} mod inner { fn h() { super::super::f() } }"),
        ("src/d.rs", "use crate::a::b::Unused; use crate::a::c;"),
    ];
    let files = files.map(|(path, code)| (code.to_owned(), code.to_owned(), PathBuf::from(path)));
    let graph = Graph::of(&Sources::parse(files.into()));
    let imports = |path| graph.targets(path).collect::<Vec<_>>();
    assert_eq!(imports("src/a/mod.rs"), ["src/a/c.rs"]);
    assert_eq!(imports("src/a/b.rs"), ["src/a/c.rs"]);
    assert_eq!(imports("src/a/c.rs"), ["src/a/b.rs", "src/a/mod.rs"]);
    assert_eq!(imports("src/d.rs"), ["src/a/b.rs", "src/a/c.rs"]);
    let circle = BTreeSet::from(["src/a/b.rs", "src/a/c.rs", "src/a/mod.rs"]);
    assert_eq!(graph.circles(), BTreeSet::from([circle.clone()]));
    assert!(graph.describe(&circle).contains("src/a/b.rs -> src/a/c.rs: super::c (1), super::c::C (1)"));
}
