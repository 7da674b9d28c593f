//! Puts the layers over each other: defaults, file, environment, flags; the later wins. Every problem is collected.

use std::collections::BTreeMap;

use quorate_core::mistakes::{Lines, Mistakes};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::problem::{Problem, Problems, Source, nearest};
use crate::settings::table::{SETTINGS, Setting, Value, is_loopback};
use crate::settings::{Settings, is_advertisable};

/// Where settings are read from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file's name and its text.
    pub file: Option<(String, String)>,
    /// Environment variables; those whose name does not begin with `QUORATE_` are not looked at.
    pub env: Vec<(String, String)>,
    /// Flags that were given: the setting's name, and the value.
    pub flags: Vec<(&'static str, String)>,
}

/// Characters that are shown of a name or a value that is wrong.
const SHOWN: usize = 80;

/// Variables that are read elsewhere: by the command line's parser, or by the tool `quorate`.
const OTHER_VARIABLES: [&str; 3] = ["QUORATE_CONFIG", "QUORATE_ENDPOINTS", "QUORATE_TIMEOUT"];

/// Reads all layers.
///
/// # Errors
/// Every name that is not known and every value that is not possible, with where it stands.
///
/// ```
/// use quorate_node::settings::{Sources, load};
/// let file = ("node.toml".to_string(), "data_dir = \"d\"\nthreds = 2\n".to_string());
/// let problems = load(&Sources { file: Some(file), ..Default::default() }).unwrap_err();
/// assert_eq!(problems.to_string(), "node.toml:2: threds is not a setting; threads was probably meant");
/// ```
pub fn load(sources: &Sources) -> Result<Settings, Problems> {
    let mut layers = Layers { settings: Settings::in_dir(""), from: BTreeMap::new(), problems: Mistakes::default() };
    layers.settings.advertise.clear();
    if let Some((name, text)) = &sources.file {
        layers.file(name, text);
    }
    layers.env(&sources.env);
    for (name, value) in &sources.flags {
        if let Some(setting) = find(name) {
            layers.text(setting, value, Source::Flag(format!("--{}", setting.flag())));
        }
    }
    layers.relations();
    if layers.problems.is_empty() {
        return Ok(layers.settings);
    }
    let rest = |first: Problem, more| Problem { message: format!("and {more} more mistakes"), ..first };
    Err(Problems(layers.problems.told(rest)))
}

fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

struct Layers {
    settings: Settings,
    /// Where each setting that was set, well or badly, comes from.
    from: BTreeMap<&'static str, Source>,
    problems: Mistakes<Problem>,
}

impl Layers {
    fn problem(&mut self, source: Source, message: String) {
        self.problems.add(Problem { source, message });
    }

    fn file(&mut self, name: &str, text: &str) {
        let lines = Lines::of(text);
        let source = |at: usize| Source::File { name: name.into(), line: lines.at(at) };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            self.problem(source(at), format!("not TOML: {}", error.message().replace('\n', "; ")));
        }
        self.file_table("", table.get_ref(), &source);
    }

    fn file_table(&mut self, prefix: &str, table: &DeTable<'_>, source: &dyn Fn(usize) -> Source) {
        let mut rows: Vec<(&Spanned<_>, &Spanned<DeValue<'_>>)> = table.iter().collect();
        rows.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in rows {
            let name = format!("{prefix}{}", key.get_ref());
            let at = source(key.span().start);
            let is_section =
                SETTINGS.iter().any(|s| s.name.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with('.')));
            match (value.get_ref(), find(&name)) {
                (DeValue::Table(inner), None) if is_section => self.file_table(&format!("{name}."), inner, source),
                (_, None) if is_section => {
                    self.problem(at, format!("{name} is a table: write [{name}] and what it holds below"))
                }
                (value, None) => {
                    let sections =
                        SETTINGS.iter().filter_map(|setting| setting.name.split_once('.')).map(|(section, _)| section);
                    let message = match value {
                        DeValue::Table(_) => unknown(&name, sections),
                        _ => unknown(&name, SETTINGS.iter().map(|setting| setting.name)),
                    };
                    self.problem(at, message);
                }
                (value, Some(setting)) => self.file_value(setting, value, at),
            }
        }
    }

    fn file_value(&mut self, setting: &'static Setting, value: &DeValue<'_>, source: Source) {
        let (taken, shown) = match value {
            DeValue::Boolean(flag) => (Some(Value::Bool(*flag)), flag.to_string()),
            DeValue::Integer(number) => {
                let digits = u64::from_str_radix(number.as_str(), number.radix()).ok();
                (digits.map(Value::Whole), number.as_str().into())
            }
            DeValue::String(text) => (Some(Value::Text(text.to_string())), format!("{text:?}")),
            other => (None, format!("a {}", other.type_str())),
        };
        let ok = taken.is_some_and(|value| setting.set_value(&mut self.settings, value));
        self.taken(setting, ok, &shown, source);
    }

    fn env(&mut self, env: &[(String, String)]) {
        let mut ours: Vec<_> = env.iter().filter(|(name, _)| name.starts_with("QUORATE_")).collect();
        ours.sort();
        for (name, value) in ours {
            if OTHER_VARIABLES.contains(&name.as_str()) || is_service_link(name) {
                continue;
            }
            let source = Source::Env(name.clone());
            match SETTINGS.iter().find(|setting| setting.env() == *name) {
                Some(setting) => self.text(setting, value, source),
                None => {
                    let known: Vec<String> = SETTINGS.iter().map(Setting::env).collect();
                    let unknown = unknown(name, known.iter().map(String::as_str));
                    self.problem(source, unknown);
                }
            }
        }
    }

    fn text(&mut self, setting: &'static Setting, text: &str, source: Source) {
        let ok = setting.set_text(&mut self.settings, text);
        self.taken(setting, ok, &format!("{text:?}"), source);
    }

    fn taken(&mut self, setting: &'static Setting, ok: bool, shown: &str, source: Source) {
        if !ok {
            let shown: String = shown.chars().take(SHOWN).collect();
            self.problem(
                source.clone(),
                format!("{} cannot be {shown}; it must be {}", setting.name, setting.allowed()),
            );
        }
        self.from.insert(setting.name, source);
    }

    fn source(&self, names: &[&str]) -> Source {
        names.iter().find_map(|name| self.from.get(name)).cloned().unwrap_or(Source::Default)
    }

    /// What no setting says alone. A setting that was refused has kept the value below it, so nothing is reported twice
    /// in other words, except `data_dir`, which has none below.
    fn relations(&mut self) {
        if !self.from.contains_key("data_dir") {
            let message = "data_dir is not set; name the directory that holds the node's state (--data-dir, QUORATE_DATA_DIR, or in the file)";
            self.problem(Source::Default, message.into());
        }
        self.addresses();
        let raft = &self.settings.raft;
        let (heartbeat, least, most) =
            (raft.heartbeat.as_millis(), raft.election_min.as_millis(), raft.election_max.as_millis());
        if heartbeat * 3 > least {
            let source = self.source(&["raft.heartbeat_ms", "raft.election_min_ms"]);
            self.problem(
                source,
                format!("raft.heartbeat_ms ({heartbeat}) must be at most a third of raft.election_min_ms ({least})"),
            );
        }
        if least >= most {
            let source = self.source(&["raft.election_max_ms", "raft.election_min_ms"]);
            self.problem(
                source,
                format!("raft.election_max_ms ({most}) must be more than raft.election_min_ms ({least})"),
            );
        }
    }

    fn addresses(&mut self) {
        let listen = self.settings.listen.to_string();
        let advertised = self.from.contains_key("advertise");
        if self.settings.advertise.is_empty() {
            self.settings.advertise = listen.clone();
        }
        let open = |name: &str, address: &str| {
            format!(
                "{name} is {address}, which is not loopback: nothing on it would be encrypted and anybody who reaches it \
                 could call; if that is what you want, say so with --insecure (insecure = true)"
            )
        };
        if !self.settings.insecure && !is_loopback(&listen) {
            let source = self.source(&["listen"]);
            self.problem(source, open("listen", &listen));
        } else if !self.settings.insecure && advertised && !is_loopback(&self.settings.advertise) {
            let source = self.source(&["advertise"]);
            let message = open("advertise", &self.settings.advertise);
            self.problem(source, message);
        } else if !advertised && !is_advertisable(&listen) {
            let source = self.source(&["listen"]);
            let message = format!(
                "listen is {listen}, where nobody can connect to; set advertise to the host:port by which others reach this node"
            );
            self.problem(source, message);
        }
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let name: String = name.chars().take(SHOWN).collect();
    match nearest(&name, known) {
        Some(near) => format!("{name} is not a setting; {near} was probably meant"),
        None => format!("{name} is not a setting; `quorated --help` lists all"),
    }
}

/// Variables that Kubernetes sets in every pod for a service whose name begins with `quorate`.
fn is_service_link(name: &str) -> bool {
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}
