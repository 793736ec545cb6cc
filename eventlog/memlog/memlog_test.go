package memlog_test

import (
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
)

func TestConformance(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Cluster {
		var store memlog.Store
		return logtest.Cluster{Open: func() eventlog.Backend {
			b := store.Open(nil)
			t.Cleanup(func() { b.Close() })
			return b
		}}
	})
}
