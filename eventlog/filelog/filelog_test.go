package filelog_test

import (
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/filelog"
	"stele.dev/stele/eventlog/logtest"
)

func TestConformance(t *testing.T) {
	for _, size := range []int64{300, 0} {
		logtest.Run(t, func(t *testing.T) logtest.Cluster {
			b, err := filelog.Open(t.TempDir(), filelog.Options{FileBytes: size})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			return logtest.Cluster{Open: func() eventlog.Backend { return b }}
		})
	}
}
