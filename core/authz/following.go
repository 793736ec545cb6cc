package authz

import (
	"context"

	"stele.dev/stele/core/reload"
)

// files are the operator's, each of which is read again when it changes. What a file says while it is written is
// not taken for what it says: a policy file that is still empty would refuse what the whole one allows.
func (a *Authorizers) files() (list []*reload.File) {
	follow := func(flag, path string, read func() ([]byte, error), load func([]byte) error) {
		list = append(list, &reload.File{
			Path: path, Read: read,
			Load: func(_ context.Context, content []byte) error { return load(content) },
			Outcome: func(err error) {
				if err != nil {
					a.logger.Error("a changed file cannot be used; what it said before stays in use", "flag", flag, "file", path, "error", err)
				}
			},
		})
	}
	webhooks := func([]byte) error {
		a.reading.Lock()
		defer a.reading.Unlock()
		return a.reloadWebhooks()
	}
	o := &a.options
	if o.PolicyFile != "" {
		follow("--authorization-policy-file", o.PolicyFile, nil, func(content []byte) error {
			a.reading.Lock()
			defer a.reading.Unlock()
			return a.useABAC(content)
		})
	}
	if o.ConfigFile != "" {
		follow("--authorization-config", o.ConfigFile, a.webhookFiles, webhooks)
	}
	if o.Webhook.KubeconfigFile != "" {
		follow("--authorization-webhook-config-file", o.Webhook.KubeconfigFile, a.webhookFiles, webhooks)
	}
	return list
}

// webhookFiles has the configuration of webhooks, and the files that it names.
func (a *Authorizers) webhookFiles() (all []byte, err error) {
	paths := []string{a.options.ConfigFile}
	if paths[0] == "" {
		paths = nil
	}
	for _, path := range append(paths, a.webhooks.Load().files...) {
		text, err := reload.Read(path)
		if err != nil {
			return nil, err
		}
		all = append(append(all, text...), 0)
	}
	return all, nil
}
