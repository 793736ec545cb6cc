package plane

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"
	"time"

	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/controllers/clients"
)

// Replicas says how planes on the same log know each other. A log that only this process can write to has no others,
// and this plane then does what one of several does.
type Replicas struct {
	// Alone says that no other plane serves the log although it could. Then no leases are written.
	Alone bool
	// Build is the version that other replicas see; that of the config's Version if empty.
	Build string
	// Every is how often the Lease of a replica is renewed; 0 for [replicas.DefaultEvery]. All replicas must have the same.
	Every time.Duration
	// ReplaceKeys lets this plane use other keys than those of the log, which are those of the log from then on.
	ReplaceKeys bool
	// Level is the highest format level to which this plane raises the log; 0 for what the program reads.
	Level uint32
}

// openReplicas makes the registry of replicas.
func (p *Plane) openReplicas() {
	c := &p.config
	p.Replicas = replicas.New(replicas.Options{
		Committer: p.Committer, Log: p.Log, Self: p.describe, Led: p.lead, Alone: c.Replicas.Alone, Every: c.Replicas.Every,
		ReplaceKeys: c.Replicas.ReplaceKeys, KeysDir: p.pki(), Level: p.highestLevel(), Logger: c.Logger,
	})
}

// describe returns what other replicas know of this one.
func (p *Plane) describe() replicas.Replica {
	c := &p.config
	x := replicas.Replica{
		Address: p.advertise, Build: cmp.Or(c.Replicas.Build, c.Version.GitVersion), Reads: p.Log.Reads(),
		Applied: min(p.Committer.Tip().Revision(), p.History.Revision()), Keys: p.keys(),
	}
	if p.audit != nil {
		x.Applied = min(x.Applied, p.audit.Revision())
	}
	if p.Archive != nil {
		x.Sealed = p.Archive.Tip().Revision
	}
	digests := []string{p.Authenticator.Digest()}
	if p.authorizers != nil {
		digests = append(digests, p.authorizers.Digest())
	}
	if x.Configuration = strings.Join(digests, "."); strings.Trim(x.Configuration, ".") == "" {
		x.Configuration = ""
	}
	if p.authority != nil {
		x.CABundle = p.authority.PEM
	}
	for _, controller := range c.Controllers {
		x.Runs = append(x.Runs, controller.Name)
	}
	return x
}

// keys identifies the keys of this plane.
func (p *Plane) keys() (k replicas.Keys) {
	if p.authority != nil {
		k.Authority = p.authority.Fingerprint()
	}
	k.Signing, k.Tokens = p.Keys.IDs()
	k.Audit = p.hashes.Fingerprint()
	if p.own != nil {
		k.Server = p.own.Fingerprint()
	}
	return k
}

// lead runs the controllers while this plane leads.
func (p *Plane) lead(ctx context.Context) error {
	if len(p.config.Controllers) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	issuer := &clients.Issuer{Token: p.Accounts.InSecret, RootCA: p.config.RootCA}
	if p.authority != nil && issuer.RootCA == nil {
		issuer.RootCA = p.authority.PEM
	}
	return controllers.Run(ctx, p.config.Controllers, p.Pipeline, issuer, p.Committer, p.config.Logger)
}

// pki returns the path of a file in the folder of the keys that replicas share, or of the folder.
func (p *Plane) pki(elem ...string) string {
	return filepath.Join(append([]string{cmp.Or(p.config.PKIDir, p.path("pki"))}, elem...)...)
}
