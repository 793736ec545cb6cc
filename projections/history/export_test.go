package history

import "stele.dev/stele/eventlog"

// Fingerprint returns the fingerprint of a name or namespace.
func Fingerprint(log eventlog.ID, s string) uint32 { return printer{log}.hash(s) }
