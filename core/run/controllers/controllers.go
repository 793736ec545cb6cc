// Package controllers runs the controllers that Kubernetes users expect. Each controller is a client of the API with a
// user of its own, which the log and the audit log show. A controller learns everything from the API and stores
// nothing, so it may be killed at any time. Two of the same at once do no harm, because they write on condition of
// what they have read.
//
// The users are those of Kubernetes' own controllers, in the group system:masters, because policies written before
// there were controllers have no roles for them. A deny of the policy also applies to them; they log it and try again.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"stele.dev/stele/core/run/controllers/clients"
	"stele.dev/stele/core/run/controllers/garbage"

	"stele.dev/stele/core/auth/loopback"
	"stele.dev/stele/limits/steady"
)

// Controller is a controller that can be run. It is immutable.
type Controller struct {
	// Name is the name in kube-controller-manager. aliases are other names of it.
	Name    string
	aliases []string
	// account is the service account in kube-system that the controller acts as.
	account string
	run     func(context.Context, *clients.Set) error
}

// All are all controllers.
var All = []Controller{
	{"customresourcedefinition-controller", []string{"customresourcedefinition"}, "customresourcedefinition-controller", runDefinitions},
	{"garbage-collector-controller", []string{"garbage-collector", "garbagecollector"}, "generic-garbage-collector", garbage.Run},
	{"namespace-controller", []string{"namespace"}, "namespace-controller", runNamespaces},
	{"resourcequota-controller", []string{"resourcequota"}, "resourcequota-controller", runQuotas},
	{"serviceaccount-controller", []string{"serviceaccount"}, "service-account-controller", runServiceAccounts},
	{"serviceaccount-token-controller", []string{"serviceaccount-token"}, "tokens-controller", runAccountTokens},
}

// Names returns the names of all controllers.
func Names() []string {
	names := make([]string, len(All))
	for i, c := range All {
		names[i] = c.Name
	}
	return names
}

// Select returns the controllers that a list selects, like kube-controller-manager's --controllers: "name" selects
// one, "-name" excludes one, "*" selects all others; the first match counts. The error names an unknown controller.
func Select(list []string) ([]Controller, error) {
	for _, x := range list {
		if x == "*" {
			continue
		}
		if name := strings.TrimPrefix(x, "-"); !slices.ContainsFunc(All, func(c Controller) bool { return c.is(name) }) {
			return nil, fmt.Errorf("%q is not in the list of known controllers", name)
		}
	}
	var selected []Controller
	for _, c := range All {
		i := slices.IndexFunc(list, func(x string) bool { return c.is(strings.TrimPrefix(x, "-")) })
		if i >= 0 && !strings.HasPrefix(list[i], "-") || i < 0 && slices.Contains(list, "*") {
			selected = append(selected, c)
		}
	}
	return selected, nil
}

func (c *Controller) is(name string) bool { return c.Name == name || slices.Contains(c.aliases, name) }

// user returns the user of the controller.
func (c *Controller) user() user.Info {
	groups := serviceaccount.MakeGroupNames("kube-system")
	return &user.DefaultInfo{
		Name: serviceaccount.MakeUsername("kube-system", c.account), Groups: append(groups, user.SystemPrivilegedGroup),
	}
}

// Run runs controllers until the context ends. The handler serves their requests. A controller that fails or panics is
// restarted. The issuer is nil if no tokens are issued, usage if the status of quotas is not reported.
func Run(ctx context.Context, selected []Controller, api http.Handler, issuer *clients.Issuer, usage clients.Usage, logger *slog.Logger) error {
	var running sync.WaitGroup
	for _, c := range selected {
		set, err := clients.New(loopback.Config(api, c.user()), logger.With("controller", c.Name))
		if err != nil {
			return err
		}
		set.Issuer, set.Usage = issuer, usage
		running.Go(func() { c.keepRunning(ctx, set) })
	}
	running.Wait()
	<-ctx.Done()
	return ctx.Err()
}

// A failed controller is restarted after a pause. The pause doubles until the controller has run for as long as the
// longest pause.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Minute
)

func (c *Controller) keepRunning(ctx context.Context, set *clients.Set) {
	pause := firstPause
	for {
		started := time.Now()
		err := c.runOnce(ctx, set)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > longestPause {
			pause = firstPause
		}
		set.Logger.Error("a controller failed, and is started again", "error", err, "after", pause)
		if steady.Wait(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, longestPause)
	}
}

func (c *Controller) runOnce(ctx context.Context, set *clients.Set) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it panicked: %v\n%s", v, debug.Stack())
		}
	}()
	if err = c.run(ctx, set); err == nil {
		err = errors.New("it ended")
	}
	return err
}
