package pki

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ClusterName is the name of the cluster and of the context in a kubeconfig of [Authority.Kubeconfig].
const ClusterName = "stele"

// Kubeconfig returns a kubeconfig, in YAML, for a user with a certificate of this authority. Its
// one context is the current one. serverName is the name that the server's certificate must have, "" for that in the URL.
func (a *Authority) Kubeconfig(server, serverName, user string, client Pair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[ClusterName] = &clientcmdapi.Cluster{Server: server, TLSServerName: serverName, CertificateAuthorityData: a.PEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.Cert, ClientKeyData: client.Key}
	config.Contexts[ClusterName] = &clientcmdapi.Context{Cluster: ClusterName, AuthInfo: user, Namespace: "default"}
	config.CurrentContext = ClusterName
	return clientcmd.Write(*config)
}
