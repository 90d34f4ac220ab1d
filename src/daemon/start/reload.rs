//! Reloads the configuration: its sources in; all of it applied at once, or nothing, and the difference out.
//!
//! Everything that can fail happens first, away from the links. What remains is one step without a wait, so no message
//! ever meets half of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use arc_swap::Guard;
use capd_proto::identity::{Did, Keyring};
use capd_proto::message::{BackedUp, ContentHash, Draining};
use sha2::{Digest as _, Sha256};

use super::peers::{Dials, Peered};
use super::rooms::{ledger_limits, peer_rates};
use super::served::{Plan, Served, schemas};
use super::{
    StartError, api_options, check_commands, check_files, check_schemas, keyring, load_declaration, misread,
    rules_of, settings, ungranted, warnings,
};
use super::{backup, drain};
use crate::config::{self, Config, Effect, difference};
use crate::daemon::context::lock;
use crate::daemon::directory::listed::Listed;
use crate::daemon::executor::former;
use crate::daemon::sidecar::Sidecar;
use crate::daemon::sidecar::operate::{Changed, Operator, Reload, ReloadError, Work};
use crate::declaration::Declaration;
use crate::net::Host;
use crate::policy::Rules;
use crate::store::audit::Kind;

/// Applies configurations to a running sidecar.
pub(in crate::daemon) struct Reloader {
    sidecar: Weak<Sidecar>,
    host: Weak<Host>,
    /// The program that confines commands.
    helper: Option<PathBuf>,
    /// Held by the one reload at a time.
    turn: tokio::sync::Mutex<()>,
    served: Mutex<Served>,
    /// Digests of the configured DID documents.
    documents: Mutex<BTreeMap<PathBuf, [u8; 32]>>,
    dials: Dials,
    log: OnceLock<ApplyLog>,
}

/// Applies the log's settings.
type ApplyLog = Box<dyn Fn(&config::Log) + Send + Sync>;

/// A configuration with all that its files say, ready to be applied.
struct Fresh {
    config: Config,
    peered: Peered,
    keyring: Keyring,
    documents: BTreeMap<PathBuf, [u8; 32]>,
    rules: Rules,
    plan: Plan,
    declaration: Option<Declaration>,
    warnings: Vec<String>,
}

impl Reloader {
    pub(in crate::daemon) fn new(
        (sidecar, host): (&Arc<Sidecar>, &Arc<Host>),
        helper: Option<PathBuf>,
    ) -> Self {
        Self {
            sidecar: Arc::downgrade(sidecar),
            host: Arc::downgrade(host),
            helper,
            turn: tokio::sync::Mutex::default(),
            served: Mutex::default(),
            documents: Mutex::new(documents(&sidecar.ctx.config())),
            dials: Dials::default(),
            log: OnceLock::new(),
        }
    }

    /// Serves what the declaration of a start declares.
    ///
    /// **Errors:** its first mistake.
    pub(super) fn serve(
        &self,
        sidecar: &Arc<Sidecar>,
        config: &Config,
        declaration: Option<&Declaration>,
    ) -> Result<(), StartError> {
        if let Some(declaration) = declaration {
            check_schemas(declaration)?;
            check_commands(config, declaration)?;
            for warning in declaration.warnings.iter().chain(&former::broken(config, declaration)) {
                tracing::warn!("{warning}");
            }
        }
        let mut served = lock(&self.served);
        let plan = served.prepare(sidecar, config, declaration, self.helper.as_ref())?;
        served.commit(sidecar, plan);
        if let Some(declaration) = declaration {
            former::keep(config, declaration);
        }
        Ok(())
    }

    /// Dials the peers of a start.
    pub(super) fn dial(&self, host: &Arc<Host>, peered: &Peered) {
        self.dials.replace(host, peered);
    }

    /// Applies the file once more where it is not what this start has read, now that whoever changes it next finds a
    /// socket that takes a reload. It waits for nothing, so no call meets the former file.
    pub(super) fn catch_up(&self, sidecar: &Arc<Sidecar>) {
        let running = Guard::into_inner(sidecar.ctx.config());
        let Some(sources) = running.sources() else { return };
        if Config::load(sources).is_ok_and(|config| difference(&running, &config).is_empty()) {
            return;
        }
        let reloaded = self.read(sidecar).map(|fresh| {
            let reload = self.weigh(sidecar, &fresh, false);
            if let Some(declaration) = self.settle(sidecar, fresh, &reload) {
                former::keep(&sidecar.ctx.config(), &declaration);
            }
            reload
        });
        tell(&reloaded, false);
    }

    pub(in crate::daemon) fn on_log(&self, apply: ApplyLog) {
        if let Some(sidecar) = self.sidecar.upgrade() {
            apply(&sidecar.ctx.config().log);
        }
        // Only the first counts.
        let _first = self.log.set(apply);
    }

    async fn run(self: Arc<Self>, dry_run: bool) -> Result<Reload, ReloadError> {
        let _turn = self.turn.lock().await;
        let sidecar = self.sidecar.upgrade().ok_or(ReloadError::Stopping)?;
        if sidecar.ctx.draining.is_cancelled() {
            return Err(ReloadError::Stopping);
        }
        let reloader = Arc::clone(&self);
        let reading = sidecar.clone();
        // Files may be slow, and links are not to wait for them.
        let read = sidecar.ctx.tasks.compute(move || reloader.read(&reading)).await;
        let fresh = read.unwrap_or(Err(ReloadError::Stopping))?;
        let reload = self.weigh(&sidecar, &fresh, dry_run);
        if let Some(declaration) = self.settle(&sidecar, fresh, &reload) {
            let config = Guard::into_inner(sidecar.ctx.config());
            sidecar.ctx.tasks.compute(move || former::keep(&config, &declaration)).await;
        }
        Ok(reload)
    }

    /// What a fresh configuration changes, and whether it is to be applied.
    fn weigh(&self, sidecar: &Sidecar, fresh: &Fresh, dry_run: bool) -> Reload {
        let changes = self.changes(sidecar, fresh);
        let needs_restart = changes.iter().any(|change| change.effect == Effect::Restart);
        let applied = !dry_run && !needs_restart;
        Reload { applied, changes, rules: fresh.rules.shown().len(), warnings: fresh.warnings.clone() }
    }

    /// Applies what is to be applied, and drops the rest; the declaration that is in force from here on.
    fn settle(&self, sidecar: &Arc<Sidecar>, mut fresh: Fresh, reload: &Reload) -> Option<Declaration> {
        if !reload.applied {
            lock(&self.served).release(sidecar, &fresh.plan.schemas());
            return None;
        }
        let declaration = fresh.declaration.take();
        self.apply(sidecar, fresh, reload);
        declaration
    }

    /// Reads everything and makes it ready; blocks.
    fn read(&self, sidecar: &Arc<Sidecar>) -> Result<Fresh, ReloadError> {
        let running = Guard::into_inner(sidecar.ctx.config());
        let sources = running.sources().ok_or(ReloadError::Unread)?;
        let config = Config::load(sources).map_err(|mistakes| misread::config(&mistakes))?;
        let mut declared = BTreeSet::new();
        let fresh = self.make(sidecar, config, &mut declared);
        fresh.map_err(|error| {
            lock(&self.served).release(sidecar, &declared);
            misread::start(&error)
        })
    }

    fn make(
        &self,
        sidecar: &Arc<Sidecar>,
        config: Config,
        declared: &mut BTreeSet<ContentHash>,
    ) -> Result<Fresh, StartError> {
        check_files(&config)?;
        let (peered, keyring, documents) = (Peered::of(&config)?, keyring(&config)?, documents(&config));
        let rules = rules_of(&config, Some(sidecar.ctx.did().clone())).map_err(StartError::Policy)?;
        let mut warnings = warnings(&config, &rules);
        let declaration = load_declaration(&config)?;
        if let Some(declaration) = &declaration {
            check_schemas(declaration)?;
            check_commands(&config, declaration)?;
            *declared = schemas(declaration);
            warnings.extend(ungranted(&rules, declaration));
            warnings.extend(former::broken(&config, declaration));
            warnings.extend(declaration.warnings.iter().cloned());
        }
        let served = lock(&self.served);
        let plan = served.prepare(sidecar, &config, declaration.as_ref(), self.helper.as_ref())?;
        Ok(Fresh { config, peered, keyring, documents, rules, plan, declaration, warnings })
    }

    /// What a fresh configuration changes.
    fn changes(&self, sidecar: &Sidecar, fresh: &Fresh) -> Vec<Changed> {
        let mut changes: Vec<_> = difference(&sidecar.ctx.config(), &fresh.config)
            .into_iter()
            .map(|change| Changed {
                effect: change.effect(),
                key: change.key.to_owned(),
                from: change.from,
                to: change.to,
            })
            .collect();
        let mut entry = |key: &str, (from, to): (Option<String>, Option<String>)| {
            changes.push(Changed { key: key.to_owned(), from, to, effect: Effect::Now });
        };
        for path in changed_documents(&lock(&self.documents), &fresh.documents) {
            let name = path.display().to_string();
            entry("agent.did_documents", (Some(name.clone()), Some(format!("{name} (changed)"))));
        }
        let running = sidecar.door.policy.rules();
        for change in changed_rules(&running, &fresh.rules) {
            entry("policy.files", change);
        }
        for change in &fresh.plan.changes {
            entry("agent.capabilities", change.clone());
        }
        changes
    }

    /// Puts a configuration in force. It waits for nothing, so nothing happens between its parts.
    fn apply(&self, sidecar: &Arc<Sidecar>, fresh: Fresh, reload: &Reload) {
        let Fresh { config, peered, keyring, documents, rules, plan, .. } = fresh;
        let is_other_policy = changed_rules(&sidecar.door.policy.rules(), &rules).next().is_some()
            || reload.changes.iter().any(|change| matches!(&*change.key, "groups" | "allow"));
        let config = Arc::new(config);
        sidecar.ctx.replace_config(Arc::clone(&config));
        sidecar.executor.table.set_limits(ledger_limits(&config.limits));
        sidecar.executor.replace_rates(peer_rates(&config.limits));
        peered.name_in_log();
        sidecar.door.replace((peered.is_open, peered.listed()), keyring, is_other_policy.then_some(rules));
        let listed =
            Listed { dialled: peered.dialled(), serves: peered.serves(), others: config.peer.serves.clone() };
        sidecar.directory.replace_peers(listed, |did: &Did| sidecar.door.admits(did));
        lock(&self.served).commit(sidecar, plan);
        if let Some(host) = self.host.upgrade() {
            host.replace_settings(super::Settings {
                starts_commands: self.helper.is_some(),
                ..settings(&config)
            });
            self.dials.replace(&host, &peered);
        }
        if let Some(api) = sidecar.fronts.api.get() {
            api.replace_options(api_options(&config));
        }
        if let Some(apply) = self.log.get() {
            apply(&config.log);
        }
        *lock(&self.documents) = documents;
        self.tell(sidecar, reload);
    }

    /// Accounts for a configuration that is in force.
    fn tell(&self, sidecar: &Sidecar, reload: &Reload) {
        for warning in &reload.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!(changes = reload.changes.len(), rules = reload.rules, "the configuration is reloaded");
        if reload.changes.is_empty() {
            return;
        }
        for Changed { key, from, to, .. } in &reload.changes {
            tracing::info!(target: "audit", key, from, to, "the configuration has changed");
        }
        let told = reload.changes.iter().take(AUDITED_MAX);
        let told: Vec<_> = told
            .map(|change| serde_json::json!({"key": change.key, "from": change.from, "to": change.to}))
            .collect();
        let record = sidecar.account.audited(Kind::Reloaded);
        let record = record.with("changes", told).with("changeCount", reload.changes.len());
        sidecar.account.audit.record(record);
    }
}

impl Operator for Reloader {
    fn reload(self: Arc<Self>, dry_run: bool) -> Work<Result<Reload, ReloadError>> {
        Box::pin(async move {
            let reloaded = self.run(dry_run).await;
            tell(&reloaded, dry_run);
            reloaded
        })
    }

    fn backup(self: Arc<Self>) -> Work<Result<BackedUp<'static>, String>> {
        Box::pin(async move {
            // One change of the sidecar as a whole at a time.
            let _turn = self.turn.lock().await;
            let sidecar = self.sidecar.upgrade().ok_or("the sidecar is shutting down")?;
            backup::backup(&sidecar).await
        })
    }

    fn drain(self: Arc<Self>, retire: bool) -> Work<Result<Draining, ReloadError>> {
        Box::pin(async move {
            let sidecar = self.sidecar.upgrade().ok_or(ReloadError::Stopping)?;
            Ok(if retire { drain::retire(&sidecar).await } else { drain::drain(&sidecar) })
        })
    }
}

/// Has the log say why a configuration is not in force.
fn tell(reloaded: &Result<Reload, ReloadError>, dry_run: bool) {
    match reloaded {
        Ok(reload) if !reload.applied && !dry_run => {
            let keys = reload.changes.iter().filter(|change| change.effect == Effect::Restart);
            let keys: Vec<_> = keys.map(|change| change.key.as_str()).collect();
            tracing::error!(
                keys = keys.join(", "),
                "the configuration is not reloaded: these keys change only with a restart"
            );
        }
        Err(error) if !dry_run => {
            tracing::error!(%error, "the configuration is not reloaded: the running one stays in force");
        }
        Ok(_) | Err(_) => {}
    }
}

/// The rules that differ, by their text.
fn changed_rules(from: &Rules, to: &Rules) -> impl Iterator<Item = (Option<String>, Option<String>)> + use<> {
    let texts = |rules: &Rules| -> BTreeSet<String> {
        // Its line moves with what stands above it.
        let of_file = rules.shown().iter().filter_map(|rule| Some((rule.origin.rsplit_once(':')?.0, rule)));
        of_file.map(|(file, rule)| format!("{file}: {}", rule.text)).collect()
    };
    let (from, to) = (texts(from), texts(to));
    let removed = from.difference(&to).map(|text| (Some(text.clone()), None));
    let changed: Vec<_> =
        removed.chain(to.difference(&from).map(|text| (None, Some(text.clone())))).collect();
    changed.into_iter()
}

/// Digests of the DID documents of a configuration; one that cannot be read has none.
fn documents(config: &Config) -> BTreeMap<PathBuf, [u8; 32]> {
    let digest = |path: &PathBuf| Some((path.clone(), Sha256::digest(std::fs::read(path).ok()?).into()));
    config.agent.did_documents.iter().filter_map(digest).collect()
}

fn changed_documents<'a>(
    from: &'a BTreeMap<PathBuf, [u8; 32]>,
    to: &'a BTreeMap<PathBuf, [u8; 32]>,
) -> impl Iterator<Item = &'a PathBuf> {
    from.iter()
        .filter(|(path, digest)| to.get(*path).is_some_and(|other| other != *digest))
        .map(|(path, _)| path)
}

/// Changes that one audit record tells.
const AUDITED_MAX: usize = 100;
