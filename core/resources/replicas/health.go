package replicas

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Health returns what is wrong with the replicas together: keys or files that differ, no leader, a Lease that cannot be
// written. This replica serves all the same.
func (r *Registry) Health() error {
	if r.Alone() {
		return nil
	}
	var errs []error
	if err := r.failing.Err(); err != nil {
		errs = append(errs, fmt.Errorf("the lease %s of this replica cannot be written: %w", r.id, err))
	}
	if r.Leader() == "" {
		errs = append(errs, errors.New("no replica leads at the moment, so no controllers run"))
	}
	return errors.Join(append(errs, r.differences()...)...)
}

// differences returns in what the live replicas differ from this one, although all of them should be the same.
func (r *Registry) differences() (list []error) {
	all := r.Live()
	self := all[0]
	for _, x := range all[1:] {
		if x.Keys.Authority != self.Keys.Authority {
			list = append(list, fmt.Errorf("replica %s (%s) has another certificate authority: give all replicas the same --pki-dir, or copies of one", x.ID, x.Address))
		}
		if !slices.Equal(x.Keys.Tokens, self.Keys.Tokens) {
			list = append(list, fmt.Errorf("replica %s (%s) verifies tokens of service accounts by other keys: give all replicas the same keys by --service-account-signing-key-file and --service-account-key-file", x.ID, x.Address))
		}
		if a, b := x.Keys.Audit, self.Keys.Audit; a != b && a != "" && b != "" { // earlier versions do not say it
			list = append(list, fmt.Errorf("replica %s (%s) makes other hashes of secrets in audit lines and decisions, so equal values are not equal there: copy audit.key to the folders of the keys of all replicas", x.ID, x.Address))
		}
		if x.Configuration != self.Configuration {
			list = append(list, fmt.Errorf("replica %s (%s) has other files on authorization or authentication: compare the metrics stele_authorization_file_info and stele_authentication_file_info of both", x.ID, x.Address))
		}
	}
	return list
}

// reportDifferences logs the differences when they change.
func (r *Registry) reportDifferences() {
	var texts []string
	for _, err := range r.differences() {
		texts = append(texts, err.Error())
	}
	now := strings.Join(texts, "; ")
	r.mu.Lock()
	changed := now != r.last
	r.last = now
	r.mu.Unlock()
	if changed && now != "" {
		r.o.Logger.Warn("replicas differ", "differences", now)
	}
}
