package tokens_test

import (
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// A token is valid at a replica that has not heard yet of its account, which another one made.
func TestATokenOfAnotherReplica(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Bundle)
	deaf := func(op memlog.Op) memlog.Fault { return memlog.Fault{LoseAnswer: op == memlog.Wait} }
	other, err := planetest.OpenReplicaWith(t.Context(), store.Open(deaf), planetest.Options{KeyFile: p.KeyFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	p.Account(t, "robot")
	if who := other.Known(t, p.Token(t, "robot", "")); who != "system:serviceaccount:default:robot" {
		t.Errorf("it is of %q", who)
	}
}
