package etcdtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// memberVariable is the environment variable with the settings of a member. The test binary is a member if it is set.
const memberVariable = "ETCDTEST_MEMBER"

// What a member prints when it listens, and when it has joined the cluster.
const (
	saysListening = "listening\n"
	saysReady     = "ready\n"
)

// settings are those of one member.
type settings struct {
	Name, Dir    string
	Cluster      string // as in --initial-cluster
	Token        string // which no other cluster has
	ClientURL    string // of the proxy for clients
	Quota        int64
	MaxRequest   uint
	Tick         time.Duration // of heartbeats; an election begins after ten
	Fsync        bool
	CertFile     string
	KeyFile      string
	ClientCAFile string
}

// The Unix sockets of a member, in its working folder.
const (
	peerSocket   = "peers:1"
	clientSocket = "clients:1"
)

// Member runs an etcd member and ends the process, if the process was started as a member. It MUST be the first call in
// TestMain.
func Member() {
	text := os.Getenv(memberVariable)
	if text == "" {
		return
	}
	if err := runMember(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runMember runs a member until the test's process closes stdin, or ends.
func runMember(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	etcd, err := embed.StartEtcd(s.config())
	if err != nil {
		return err
	}
	fmt.Print(saysListening)
	go func() {
		<-etcd.Server.ReadyNotify()
		fmt.Print(saysReady)
	}()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case err := <-etcd.Err():
		return err
	}
}

func (s settings) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = s.Name, s.Dir
	cfg.BcryptCost = 4 // the least: with the race detector, a password at etcd's own cost takes longer than a write may
	cfg.InitialCluster, cfg.InitialClusterToken = s.Cluster, s.Token
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{unixURL(peerSocket)}, []url.URL{unixURL(socketOf(s.Name))}
	client, _ := url.Parse(s.ClientURL) // made by this package
	listen := unixURL(clientSocket)
	if s.CertFile != "" {
		listen.Scheme = "unixs"
		cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = s.CertFile, s.KeyFile
		cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = s.ClientCAFile, s.ClientCAFile != ""
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{listen}, []url.URL{*client}
	cfg.TickMs, cfg.ElectionMs = uint(s.Tick.Milliseconds()), uint(10*s.Tick.Milliseconds())
	cfg.QuotaBackendBytes = s.Quota
	if s.MaxRequest > 0 {
		cfg.MaxRequestBytes = s.MaxRequest
	}
	cfg.UnsafeNoFsync = !s.Fsync
	cfg.EnableGRPCGateway = false
	cfg.LogLevel, cfg.LogOutputs = "warn", []string{"stderr"}
	return cfg
}

// socketOf is the name of the socket through which a member reaches another.
func socketOf(name string) string { return name + ":1" }

func unixURL(socket string) url.URL { return url.URL{Scheme: "unix", Host: socket} }
