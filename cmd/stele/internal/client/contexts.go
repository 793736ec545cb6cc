package client

import (
	"fmt"
	"regexp"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AtMoment matches the end of a server's URL that shows a revision.
var AtMoment = regexp.MustCompile(`/at/([0-9]+)/?$`)

// anyMoment matches the end of a server's URL that shows a revision or a time.
var anyMoment = regexp.MustCompile(`/at/[0-9][^/]*/?$`)

// PresentURL returns the URL of a server without the moment that it shows.
func PresentURL(server string) string {
	return anyMoment.ReplaceAllString(strings.TrimSuffix(server, "/"), "")
}

// ContextAt is a context of a kubeconfig whose server shows a revision.
type ContextAt struct {
	Name        string // of the context
	ClusterName string
	Context     *clientcmdapi.Context
	Cluster     *clientcmdapi.Cluster
	Revision    uint64
	Original    string // name of the context that it is a copy of
}

// ContextsAt returns the contexts of a kubeconfig whose servers show a revision, by name.
func ContextsAt(raw *clientcmdapi.Config) map[string]*ContextAt {
	all := map[string]*ContextAt{}
	for name, c := range raw.Contexts {
		cluster := raw.Clusters[c.Cluster]
		if cluster == nil {
			continue
		}
		end := AtMoment.FindStringSubmatch(cluster.Server)
		if end == nil || !strings.HasSuffix(name, "@"+end[1]) {
			continue
		}
		at := &ContextAt{Name: name, ClusterName: c.Cluster, Context: c, Cluster: cluster, Original: strings.TrimSuffix(name, "@"+end[1])}
		if _, err := fmt.Sscan(end[1], &at.Revision); err == nil {
			all[name] = at
		}
	}
	return all
}
