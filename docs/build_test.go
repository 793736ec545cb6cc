package docs_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// maxPackages is how many packages the default build of stele may have, those of Go and of this module included. Whoever
// tries stele compiles them all first, and each of them can have faults. A feature that few users need and that
// brings many packages belongs behind a build tag.
const maxPackages = 1750

// unlinked are packages that the default build does not have, each with the way to do without it. They import a hundred
// packages or more, and an import of one that seems small brings them back.
var unlinked = map[string]string{
	"k8s.io/client-go/informers":      "core/run/controllers/clients follows objects, and core/resources/replicas elects the leader",
	"k8s.io/client-go/kubernetes":     "core/auth/loopback.Typed makes a client for one resource",
	"gocloud.dev/blob/gcsblob":        "cmd/stele/internal/buckets has it behind a build tag",
	"gocloud.dev/blob/azureblob":      "cmd/stele/internal/buckets has it behind a build tag",
	"k8s.io/apiserver/pkg/server":     "core/serve/server is the server",
	"k8s.io/kubectl/pkg/cmd":          "only tests have it",
	"k8s.io/cli-runtime/pkg/printers": "only tests have it",
}

func TestTheDefaultBuildIsSmall(t *testing.T) {
	listed, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../cmd/stele").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(listed))
	if len(packages) > maxPackages {
		t.Errorf("cmd/stele has %d packages, and should have at most %d", len(packages), maxPackages)
	}
	for name, instead := range unlinked {
		if slices.Contains(packages, name) {
			t.Errorf("cmd/stele has %s, which imports many others: %s", name, instead)
		}
	}
	if len(packages) < 500 {
		t.Errorf("only %d packages were listed", len(packages))
	}
}
