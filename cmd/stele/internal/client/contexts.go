package client

import (
	"fmt"
	"regexp"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AtMoment is how the URL of a server ends that is at one.
var AtMoment = regexp.MustCompile(`/at/([0-9]+)/?$`)

// anyMoment is how it ends if somebody wrote it.
var anyMoment = regexp.MustCompile(`/at/[0-9][^/]*/?$`)

// PresentURL is the URL of a server as it is now.
func PresentURL(server string) string {
	return anyMoment.ReplaceAllString(strings.TrimSuffix(server, "/"), "")
}

// at is a kubeconfig's context at a revision.
type ContextAt struct {
	Name        string // of the context
	ClusterName string
	Context     *clientcmdapi.Context
	Cluster     *clientcmdapi.Cluster
	Revision    uint64
	Original    string // name of the context that it is like
}

// moments are the contexts that are at one, by their names.
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
