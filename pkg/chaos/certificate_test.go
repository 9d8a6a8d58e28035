package chaos

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newAuthority makes a CA as kubeadm does.
func testAuthority(t *testing.T, key crypto.Signer) *authority {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key}
}

func block(typ string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}))
}

func pkcs8(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return block("PRIVATE KEY", der)
}

func TestKubeletPEM(t *testing.T) {
	ca := testAuthority(t, newKey(t))
	notBefore := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	whole := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ asked, want time.Time }{
		{whole, whole},
		{whole.Add(1), whole.Add(time.Second)},
		{whole.Add(500 * time.Millisecond), whole.Add(time.Second)},
		{whole.Add(time.Second - 1), whole.Add(time.Second)},
	} {
		text, err := ca.kubeletPEM("c1-worker2", notBefore, tc.asked)
		if err != nil {
			t.Fatal(err)
		}
		first, rest := pem.Decode(text)
		second, rest := pem.Decode(rest)
		if first == nil || second == nil || first.Type != "CERTIFICATE" || second.Type != "EC PRIVATE KEY" || len(rest) != 0 {
			t.Fatalf("not a certificate and then its key:\n%s", text)
		}
		cert, err := x509.ParseCertificate(first.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !cert.NotAfter.Equal(tc.want) || !cert.NotBefore.Equal(notBefore) {
			t.Errorf("asked until %s: valid from %s until %s, want %s", tc.asked, cert.NotBefore, cert.NotAfter, tc.want)
		}
		if cert.Subject.CommonName != "system:node:c1-worker2" || !slices.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
			t.Errorf("subject %s", cert.Subject)
		}
		if !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || cert.KeyUsage != x509.KeyUsageDigitalSignature || cert.IsCA {
			t.Errorf("usages %v, %v, CA %v", cert.ExtKeyUsage, cert.KeyUsage, cert.IsCA)
		}
		// As the kubelet loads it; fails where key and certificate are no pair.
		if _, err := tls.X509KeyPair(text, text); err != nil {
			t.Error(err)
		}
	}
	one, err := ca.kubeletPEM("n", notBefore, whole)
	if err != nil {
		t.Fatal(err)
	}
	if other, _ := ca.kubeletPEM("n", notBefore, whole); bytes.Equal(one, other) {
		t.Error("two certificates are the same")
	}
}

func TestRotateNow(t *testing.T) {
	for _, life := range []time.Duration{20 * time.Second, 40 * time.Second, spareLife} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(123456789 * time.Nanosecond) // no whole second
			ca := testAuthority(t, newKey(t))
			text, err := ca.rotateNow("worker", life)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := pem.Decode(text)
			cert, err := x509.ParseCertificate(b.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			if left := cert.NotAfter.Sub(now); left < life || left >= life+time.Second {
				t.Errorf("life %s: %s left", life, left)
			}
			// jitteryDuration: between 70 and 90 % of the whole.
			latest := cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) * 9 / 10)
			if !latest.Before(now) {
				t.Errorf("life %s: the rotation deadline may be %s away", life, latest.Sub(now))
			}
			roots := x509.NewCertPool()
			roots.AddCert(ca.cert)
			for at, valid := range map[time.Time]bool{now: true, now.Add(life): true, now.Add(life + time.Second): false} {
				_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
				if (err == nil) != valid {
					t.Errorf("life %s, %s later: %v", life, at.Sub(now), err)
				}
			}
		})
	}
}

func TestReadAuthority(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey := newKey(t)
	ecDER, err := x509.MarshalECPrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey))
	ec := block("EC PRIVATE KEY", ecDER)
	certOf := func(key crypto.Signer) string { return block("CERTIFICATE", testAuthority(t, key).cert.Raw) }
	for _, tc := range []struct {
		name, text string
		key        crypto.Signer
		err        string
	}{
		{"PKCS #1", certOf(rsaKey) + pkcs1, rsaKey, ""},
		{"SEC 1", certOf(ecKey) + ec, ecKey, ""},
		{"PKCS #8 with RSA", certOf(rsaKey) + pkcs8(t, rsaKey), rsaKey, ""},
		{"PKCS #8 with EC", certOf(ecKey) + pkcs8(t, ecKey), ecKey, ""},
		{"PKCS #8 with Ed25519", certOf(edKey) + pkcs8(t, edKey), edKey, ""},
		{"key first, text around", "a CA\n" + ec + "and\n" + certOf(ecKey) + "end", ecKey, ""},
		{"no key", certOf(ecKey), nil, "no certificate or no key"},
		{"no certificate", ec, nil, "no certificate or no key"},
		{"nothing", "", nil, "no certificate or no key"},
		{"an encrypted key", certOf(ecKey) + block("ENCRYPTED PRIVATE KEY", ecDER), nil, "no certificate or no key"},
		{"bad certificate", block("CERTIFICATE", []byte("x")) + ec, nil, "x509: "},
		{"bad EC key", certOf(ecKey) + block("EC PRIVATE KEY", []byte("x")), nil, "x509: "},
		{"bad RSA key", certOf(ecKey) + block("RSA PRIVATE KEY", []byte("x")), nil, "asn1: "},
		{"bad PKCS #8 key", certOf(ecKey) + block("PRIVATE KEY", []byte("x")), nil, "asn1: "},
	} {
		n := &fakeNode{answer: func(context.Context, string) (string, error) { return tc.text, nil }}
		a, err := readAuthority(t.Context(), n)
		if tc.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "reading the cluster's CA: ") || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %s", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		type comparable interface{ Equal(crypto.PrivateKey) bool }
		if !tc.key.(comparable).Equal(a.key) {
			t.Errorf("%s: another key", tc.name)
		}
		text, err := a.kubeletPEM("n", time.Now().Add(-time.Minute), time.Now().Add(time.Minute))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		b, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if err := cert.CheckSignatureFrom(a.cert); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if want := []string{"cat /etc/kubernetes/pki/ca.crt /etc/kubernetes/pki/ca.key"}; !slices.Equal(n.scripts, want) {
			t.Errorf("ran %q", n.scripts)
		}
	}
	gone := errors.New("no such container")
	n := &fakeNode{answer: func(context.Context, string) (string, error) { return "", gone }}
	if _, err := readAuthority(t.Context(), n); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
}

func TestInstall(t *testing.T) {
	const current = "pki/kubelet-client-current.pem"
	for _, tc := range []struct {
		name   string
		before func(n *shellNode)
	}{
		{"nothing there", func(n *shellNode) { n.must(os.Remove(n.path("pki"))) }},
		{"link", func(n *shellNode) {
			n.write("pki/kubelet-client-old.pem", "old")
			n.must(os.Symlink(n.path("pki/kubelet-client-old.pem"), n.path(current)))
		}},
		{"plain file", func(n *shellNode) { n.write(current, "old") }},
		{"dangling link", func(n *shellNode) { n.must(os.Symlink("/nonexistent/x.pem", n.path(current))) }},
		{"link to a folder", func(n *shellNode) { n.must(os.Symlink(n.root, n.path(current))) }},
		{"left by an installation that was cut short", func(n *shellNode) {
			n.must(os.Symlink(n.root, n.path("pki/flatline-link")))
			n.write("pki/flatline-spare.pem", "half")
		}},
		{"installed before", func(n *shellNode) {
			n.write("pki/flatline-spare.pem", "spare")
			n.must(os.Symlink(n.path("pki/flatline-spare.pem"), n.path(current)))
		}},
		{"half rotated", func(n *shellNode) {
			n.write("pki/kubelet-client-updated.pem", "old")
			n.must(os.Symlink(n.path("pki/kubelet-client-updated.pem"), n.path(current)))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newShellNode(t)
			n.write("staged.pem", "spare")
			tc.before(n)
			script := installScript("staged.pem", "flatline-spare.pem")
			for range 2 { // a step may be repeated
				n.run(script)
				if got := n.read(current); got != "spare" {
					t.Errorf("the current certificate is %q", got)
				}
				if to, err := os.Readlink(n.path(current)); err != nil || to != n.path("pki/flatline-spare.pem") {
					t.Errorf("link to %q, %v", to, err)
				}
				info, err := os.Stat(n.path("pki/flatline-spare.pem"))
				n.must(err)
				if info.Mode().Perm() != 0o600 {
					t.Errorf("mode %v", info.Mode())
				}
				for _, left := range []string{"pki/kubelet-client-updated.pem", "pki/flatline-link"} {
					if n.exists(left) {
						t.Errorf("%s is left", left)
					}
				}
			}
			if n.exists("pki/kubelet-client-old.pem") && n.read("pki/kubelet-client-old.pem") != "old" {
				t.Error("the node's own certificate was overwritten")
			}
		})
	}

	// Without a spare the node's certificate stays.
	n := newShellNode(t)
	n.write(current, "old")
	if _, err := (Node{"n", n}).script(t.Context(), nil, installScript("staged.pem", "flatline-spare.pem")); err == nil || n.read(current) != "old" {
		t.Errorf("without a spare: error %v, current certificate %q", err, n.read(current))
	}
}
