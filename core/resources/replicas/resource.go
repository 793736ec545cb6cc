package replicas

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/read"
	"stele.dev/stele/schemas"
)

// Group, Version, Plural and Kind name the API of replicas. They are read only.
const (
	Group   = "log.stele.dev"
	Version = "v1"
	Plural  = "replicas"
	Kind    = "Replica"
)

// Columns returns the columns that kubectl prints of replicas.
func Columns() []schemas.Column {
	return []schemas.Column{
		{Name: "Address", Type: "string", JSONPath: ".status.address"},
		{Name: "Build", Type: "string", JSONPath: ".status.build"},
		{Name: "Renewed", Type: "date", JSONPath: ".status.renewed", Description: "How long ago its lease was renewed."},
		{Name: "Lag", Type: "integer", JSONPath: ".status.lag", Description: "Revisions that its projections were behind then."},
		{Name: "Live", Type: "boolean", JSONPath: ".status.live"},
		{Name: "Leader", Type: "boolean", JSONPath: ".status.leader"},
		{Name: "Level", Type: "integer", JSONPath: ".status.level", Description: "Highest format level of the log that it reads."},
		{Name: "Keys", Type: "string", JSONPath: ".status.keys.same", Description: "Whether its keys are those of the server that answers."},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		{Name: "Runs", Type: "string", JSONPath: ".status.runs", Priority: 1, Description: "What it runs when it leads."},
	}
}

// Resource returns the virtual resource of replicas.
func Resource(rd *read.Reader, r *Registry) *catalog.Resource {
	return read.NewPresent(rd, discovery.NewResource(Group, Version, Kind, Plural), Columns, r.objects)
}

// objects returns the replicas as clients see them.
func (r *Registry) objects() []ReplicaObject {
	all := r.All()
	self := all[0]
	list := make([]ReplicaObject, len(all))
	for i, x := range all {
		keys := KeysStatus{Same: "same", Authority: x.Keys.Authority, ServiceAccounts: x.Keys.Tokens, Audit: x.Keys.Audit, Server: x.Keys.Server}
		if x.Keys.differ(&self.Keys) {
			keys.Same = "other"
		}
		list[i] = ReplicaObject{
			TypeMeta:   metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: Kind},
			ObjectMeta: metav1.ObjectMeta{Name: x.ID, CreationTimestamp: metav1.NewTime(x.Started.Truncate(1e9)), Labels: map[string]string{IdentityLabel: Identity}},
			Status: Status{
				Address: x.Address, Build: x.Build, Level: int64(x.Reads), Applied: x.Applied, Sealed: x.Sealed, Lag: x.Tip - min(x.Tip, x.Applied), Renewed: x.Renewed.UTC().Format(time.RFC3339Nano),
				Live: x.Live, Leader: x.Leads, Runs: x.Runs, Self: x.Self, Keys: keys, CABundle: x.CABundle, Configuration: x.Configuration,
			},
		}
	}
	slices.SortFunc(list, func(a, b ReplicaObject) int { return strings.Compare(a.Name, b.Name) }) // equal on all replicas
	return list
}
