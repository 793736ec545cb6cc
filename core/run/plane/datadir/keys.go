package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// lostKeys are key files that are missing from a data directory that has been in use. A start
// would create new ones, and everything signed by the old ones would be refused.
type lostKeys struct {
	authority  []string // paths of ca.crt and ca.key
	signingKey string   // path of the key that signs tokens of service accounts
}

// CheckKeys returns an error if the folder has been in use and a key file is missing, because a start would create
// another key. With replaceLost it makes room for new keys instead, and logs what that means. ownSigningKey reports
// that the key for the tokens of service accounts is in this folder.
func (d *Dir) CheckKeys(ownSigningKey, replaceLost bool) error {
	if d.options.PKIDir == "" {
		d.options.PKIDir = d.Path("pki")
	}
	inUse, err := d.inUse()
	if err != nil || !inUse {
		return err
	}
	lost, err := d.findLostKeys(ownSigningKey)
	switch {
	case err != nil:
		return err
	case replaceLost:
		return d.replaceLost(lost)
	}
	return lost.refused()
}

// inUse reports whether an earlier start got as far as etcd, which it starts after it has created all keys.
func (d *Dir) inUse() (bool, error) {
	if used, err := exists(d.Path(logIDFile)); used || err != nil {
		return used, err
	}
	return exists(d.Path("etcd", "member"))
}

func (d *Dir) findLostKeys(ownSigningKey bool) (lost lostKeys, err error) {
	missing := func(file string) bool {
		found, statErr := exists(file)
		err = errors.Join(err, statErr)
		return !found
	}
	for _, name := range []string{"ca.crt", "ca.key"} {
		if file := filepath.Join(d.options.PKIDir, name); missing(file) {
			lost.authority = append(lost.authority, file)
		}
	}
	if file := filepath.Join(d.options.PKIDir, "sa.key"); ownSigningKey && missing(file) {
		lost.signingKey = file
	}
	return lost, err
}

// refused returns an error that says what the loss means and what to do; nil if no key is lost.
func (l *lostKeys) refused() error {
	var errs []error
	if len(l.authority) > 0 {
		errs = append(errs, fmt.Errorf("%s is missing, but this data directory has been in use: with a new certificate authority every kubeconfig and client certificate made so far would be refused; restore the folder pki from a backup, or start once with --replace-lost-keys and hand out new kubeconfigs",
			l.authority[0]))
	}
	if l.signingKey != "" {
		errs = append(errs, fmt.Errorf("%s is missing, but this data directory has been in use: with a new key every token of a service account issued so far would be refused; restore the file from a backup, name the key in use with --service-account-signing-key-file, or start once with --replace-lost-keys",
			l.signingKey))
	}
	return errors.Join(errs...)
}

// replaceLost moves the remaining files of a lost authority away, and logs what new keys mean.
func (d *Dir) replaceLost(l lostKeys) error {
	if len(l.authority) > 0 {
		for _, name := range []string{"ca.crt", "ca.key"} {
			if err := os.Rename(filepath.Join(d.options.PKIDir, name), filepath.Join(d.options.PKIDir, name+".lost")); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		d.options.Logger.Warn("a new certificate authority is made in place of the lost one: kubeconfigs and client certificates made so far are refused", "folder", d.options.PKIDir)
	}
	if l.signingKey != "" {
		d.options.Logger.Warn("a new key for the tokens of service accounts is made in place of the lost one: tokens issued so far are refused", "file", filepath.Base(l.signingKey))
	}
	return nil
}
