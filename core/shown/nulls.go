package shown

import (
	"bytes"

	"stele.dev/stele/policy"
)

// nulls are what is shown of fields that an object lacks, each as `,"eventTime":null`. Kubernetes shows times of its own
// kinds which are not set so.
type nulls []string

func nullsOf(fields ...string) (n nulls) {
	for _, f := range fields {
		n = append(n, `,"`+f+`":null`)
	}
	return n
}

// Of events in the core group, and in events.k8s.io.
var (
	eventTimes = nullsOf("eventTime", "firstTimestamp", "lastTimestamp")
	faceTimes  = nullsOf("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp")
)

// nullsIn returns those of a kind.
func nullsIn(k *policy.Kind) nulls {
	switch {
	case k.Face != nil:
		return faceTimes
	case k.Builtin && k.Group == "" && k.Plural == "events":
		return eventTimes
	}
	return nil
}

// appendTo appends what the object lacks that begins in a text at from, and ends it. No string holds the name of a field
// between quotes, as these would be escaped.
func (n nulls) appendTo(text []byte, from int) []byte {
	for _, null := range n {
		if name := null[1 : len(null)-len("null")]; !bytes.Contains(text[from:], []byte(name)) {
			text = append(append(text[:len(text)-1], null...), '}')
		}
	}
	return text
}
