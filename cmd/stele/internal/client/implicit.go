package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// implicitFile is the kubeconfig of a server that was started in the current folder. It is used if no other is named.
var implicitFile = filepath.Join("stele-data", "admin.kubeconfig")

// implicit reports whether no kubeconfig is named, so that [implicitFile] is used.
func (o *Flags) implicit() bool {
	return o.Kubeconfig == "" && !usage.IsPlugin() && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == ""
}

// checkImplicit returns an error unless a kubeconfig that nobody has named is one that a server of this user has written, or
// is missing. Somebody else may have written the current folder, and a kubeconfig can name programs to run and files to send.
func checkImplicit(file string) error {
	refuse := func(why string) error {
		return fmt.Errorf("%s is not used, because %s; if you trust it, give --kubeconfig %s", file, why, usage.Quote(file))
	}
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return refuse("it is no regular file")
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Getuid() {
		return refuse("it belongs to another user")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return refuse(fmt.Sprintf("other users may read or write it (%s)", info.Mode().Perm()))
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return err
	}
	for name, user := range config.AuthInfos {
		if what := reaching(user); what != "" {
			return refuse(fmt.Sprintf("its user %s has %s", name, what))
		}
	}
	return nil
}

// reaching returns which field of a user starts a program or reads another file; empty if none does. Servers write
// neither.
func reaching(user *clientcmdapi.AuthInfo) string {
	switch {
	case user.Exec != nil:
		return "an exec plugin"
	case user.AuthProvider != nil:
		return "an auth-provider"
	case user.TokenFile != "":
		return "a tokenFile"
	case user.ClientKey != "" || user.ClientCertificate != "":
		return "a certificate in another file"
	}
	return ""
}
