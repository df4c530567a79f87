package config

import (
	"maps"
	"slices"

	"github.com/berth-run/berth"
)

const (
	second = 1.0
	minute = 60.0
)

// Rules of many keys.
var (
	zeroOrMore = atLeast(0, "0 or more")
	oneOrMore  = atLeast(1, "1 or more")
	aTime      = atLeast(0.001, "1ms or more")
	aTimeOr0   = atLeast(0, "0s or more")
	aRetention = atLeast(second, "1s or more")
)

// keyRules are the values that keys may have. Each key with a number or a duration has a rule.
// Sizes, amounts and prices have types of their own, which reject negative values. The keys of
// models and upstreams are below "upstream".
var keyRules = map[string]keyRule{
	"driver":         oneOf(Drivers...),
	"build_template": oneOf(BuildAuto, buildNever),
	"microvm.accel":  oneOf("kvm", "tcg"),

	"kubernetes.cpu_request":            between(0.001, 1, "above 0, and 1 or less"),
	"kubernetes.memory_request":         between(0.001, 1, "above 0, and 1 or less"),
	"kubernetes.tolerations.*.seconds":  zeroOrMore,
	"kubernetes.tolerations.*.operator": oneOf("Equal", "Exists"),
	"kubernetes.tolerations.*.effect":   oneOf("NoExecute", "NoSchedule", "PreferNoSchedule"),

	"traces.sample": between(0, 1, "from 0 to 1"),

	"audit.forward.*.type":       oneOf(AuditSyslog, AuditOTLP, AuditWebhook),
	"audit.forward.*.format":     oneOf("berth", "ecs", "ocsf"),
	"audit.forward.*.max_behind": zeroOrMore,

	"retry.continue": oneOf("again", "fail"),
	"log.level":      oneOf("debug", "info", "warn", "error"),
	"log.format":     oneOf("text", "json"),

	"ssh.connections": zeroOrMore,
	"ssh.per_address": zeroOrMore,

	"server.connections":             zeroOrMore,
	"server.per_address":             zeroOrMore,
	"server.without_key":             zeroOrMore,
	"server.without_key_per_address": zeroOrMore,

	"containers.cpu":                 between(0.1, 4096, "from 0.1 to 4096"),
	"containers.pids":                between(16, 4<<20, "from 16 to 4194304"),
	"containers.disk":                atLeast(1<<20, "1m or more"),
	"containers.idle":                atLeast(minute, "1m or more"),
	"containers.max_idle":            atLeast(minute, "1m or more"),
	"containers.sleep":               aTimeOr0,
	"containers.pool":                zeroOrMore,
	"containers.max_pool":            zeroOrMore,
	"containers.pools.*.size":        oneOrMore,
	"containers.pools.*.max_size":    zeroOrMore,
	"containers.network.connections": zeroOrMore,
	"containers.starts":              zeroOrMore,
	"containers.on_expiry":           oneOf(string(berth.OnExpiryDelete), string(berth.OnExpirySnapshot)),
	"containers.snapshot_life":       atLeast(minute, "1m or more"),

	"retention.*.container_logs":   aRetention,
	"retention.*.containers":       aRetention,
	"retention.*.snapshots":        aRetention,
	"retention.*.responses":        aRetention,
	"retention.*.conversations":    aRetention,
	"retention.*.chat_completions": aRetention,
	"retention.*.threads":          aRetention,
	"retention.*.files":            aRetention,
	"retention.*.traces":           aRetention,
	"retention.*.audit":            aRetention,

	"batches.concurrency":  zeroOrMore,
	"e2b.builds":           zeroOrMore,
	"images.idle":          aTimeOr0,
	"e2b.image_size":       atLeast(1<<20, "1m or more"),
	"e2b.build_time":       atLeast(second, "1s or more"),
	"open_terminal.idle":   atLeast(minute, "0s, or 1m or more").zero(),
	"end_users.computer":   oneOf("none", "chat", "user"),
	"end_users.idle":       atLeast(minute, "0s, or 1m or more").zero(),
	"end_users.containers": zeroOrMore,
	"open_terminal.memory": oneOf("", "1g", "4g", "16g", "64g"),

	"shell.default_environment": oneOf(string(berth.DefaultContainer), string(berth.DefaultLocal)),

	"sign_in.session":         atLeast(minute, "1m or more"),
	"sign_in.projects.*.role": oneOf(roles()...),

	"shell.timeout":      atLeast(second, "1s or more"),
	"mcp.timeout":        atLeast(second, "1s or more"),
	"web_search.backend": oneOf(SearchBackends...),
	"web_search.timeout": atLeast(second, "1s or more"),
	"shell.max_timeout":  atLeast(second, "1s or more"),
	"shell.output":       between(1, 1<<20, "from 1 to 1048576"),

	"responses.max_output": atLeast(1<<10, "1k or more"),
	"responses.history":    atLeast(1<<10, "1k or more"),

	"budget.max_turns":             zeroOrMore,
	"budget.max_total_tokens":      zeroOrMore,
	"budget.max_time":              atLeast(second, "0s, or 1s or more").zero(),
	"budget.max_repeated_failures": atLeast(-1, "-1 or more"),
	"budget.max_repeated_calls":    atLeast(-1, "-1 or more"),

	"cluster.lease":     atLeast(second, "1s or more"),
	"cluster.absence":   atLeast(second, "1s or more"),
	"store.synchronous": oneOf("normal", "full"),
	"disk.inodes":       zeroOrMore,
	"retry.attempts":    oneOrMore,
	"retry.patience":    aTimeOr0,

	"upstream.provider":                   oneOf(slices.Sorted(maps.Keys(Dialects))...),
	"upstream.timeouts.connect":           aTime,
	"upstream.timeouts.first_token":       aTime,
	"upstream.timeouts.silence":           aTime,
	"upstream.limits.concurrency":         zeroOrMore,
	"upstream.limits.requests_per_minute": zeroOrMore,
	"upstream.limits.tokens_per_minute":   zeroOrMore,
	"upstream.limits.wait":                aTimeOr0,
	"upstream.breaker.failures":           oneOrMore,
	"upstream.breaker.share":              between(0.001, 1, "above 0, and 1 or less"),
	"upstream.breaker.open":               aTime,
	"upstream.system_role":                oneOf("system", "developer"),
	"upstream.max_tokens":                 oneOf("max_tokens", "max_completion_tokens"),
	"upstream.call_id_length":             oneOrMore,
	"upstream.max_output_tokens":          oneOrMore,
	"upstream.custom_tools":               oneOf("native", "function"),
	"upstream.reasoning":                  oneOf("reasoning_content", "reasoning", "encrypted", "all"),
	"upstream.thinking":                   oneOf("budget", "adaptive", "level"),
	"upstream.structured":                 oneOf("format", "tool"),
	"upstream.cache":                      oneOf("5m", "1h", "off"),
	"upstream.context_window":             zeroOrMore,
	"upstream.hedge_after":                aTimeOr0,
	"upstream.first_token":                aTime,
	"upstream.silence":                    aTime,
	"upstream.upstreams.*.weight":         oneOrMore,
	"upstream.fallbacks.*.weight":         oneOrMore,
}
