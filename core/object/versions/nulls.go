package versions

import (
	"bytes"

	"stele.dev/stele/policy"
)

// nulls are fields that Kubernetes shows as null if an object lacks them, each as `,"eventTime":null`. They are times
// of built-in kinds.
type nulls []string

func nullsOf(fields ...string) (n nulls) {
	for _, f := range fields {
		n = append(n, `,"`+f+`":null`)
	}
	return n
}

// These are the nulls of events in the core group and in events.k8s.io.
var (
	eventTimes = nullsOf("eventTime", "firstTimestamp", "lastTimestamp")
	faceTimes  = nullsOf("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp")
)

// nullsIn returns the nulls of a kind.
func nullsIn(k *policy.Kind) nulls {
	switch {
	case k.Face != nil:
		return faceTimes
	case k.Builtin && k.Group == "" && k.Plural == "events":
		return eventTimes
	}
	return nil
}

// appendTo appends the nulls that an object lacks, and ends it. The object begins in text at from. It searches for
// names between quotes, which cannot be inside a string, because there quotes are escaped.
func (n nulls) appendTo(text []byte, from int) []byte {
	for _, null := range n {
		if name := null[1 : len(null)-len("null")]; !bytes.Contains(text[from:], []byte(name)) {
			text = append(append(text[:len(text)-1], null...), '}')
		}
	}
	return text
}
