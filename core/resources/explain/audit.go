package explain

import (
	"strings"

	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/schemas/wording"
)

// AuditOf returns what the record of an audit rule says; nil if there is none, as in events of earlier versions.
func AuditOf(a *logpb.Audit) *Audit {
	if a == nil {
		return nil
	}
	x := &Audit{Level: audits.LevelName(a.Level), Rule: a.Rule, Source: a.Source, Unruled: a.Rule == "" && a.Level >= audits.Metadata}
	if a.Level >= audits.Metadata {
		x.Stages, x.OmitManagedFields = audits.Stages(a.Stages).Names(), a.OmitManagedFields
	}
	return x
}

// String describes what is recorded: "Metadata by audit/rules/rest (audit.cue:7)".
func (a *Audit) String() string {
	text := a.Level
	switch {
	case a.Rule != "":
		text += " by " + a.Rule + wording.At(a.Source)
	case a.Unruled:
		text += ": the policy has no audit rules, so that writes, refusals and reads of secrets are recorded"
	default:
		text += ": no audit rule matches"
	}
	if all := audits.All.Names(); len(a.Stages) > 0 && len(a.Stages) < len(all) && a.Rule != "" {
		text += " in " + strings.Join(a.Stages, ", ")
	}
	return text
}
