package chaos

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// Triggers of a fault of the certificate's files: a running kubelet has its
// certificate in memory, so that nothing happens before one of these.
const (
	byRestart  = judge.ByRestart
	byRotation = judge.ByRotation
)

// A fileFault is one way to make a kubelet's certificate files unusable. Its scripts
// run in the node; P is the folder of the files, C the link to the current one.
type fileFault struct {
	what    string // in words
	breaks  string // script
	inPlace string // script that succeeds while it is
	// says are the words of the kubelet that show it biting, by trigger: an extended
	// regular expression for its journal.
	says map[string]string
	// effects are what it does to the heartbeat, by trigger.
	effects map[string]judge.Effect
	// powerless takes from the kubelet the right to pass over modes, by a drop-in of
	// its unit.
	powerless bool
	// pem, where it is set, makes what is put in the place of the certificate.
	pem func(t *Target, n Node) ([]byte, error)
}

// What the kubelet says, by what has become of its certificate.
const (
	cannotStart = "unable to read existing bootstrap client config.*"
	cannotAsk   = "Unable to load a client to request certificates.*"
	cannotStore = "Unable to store the new cert/key pair.*"
	notAnswered = "Failed while requesting a signed certificate.*"
)

// fileFaults are all of them by their type.
func fileFaults() map[string]fileFault {
	either := func(start, ask string) map[string]string {
		return map[string]string{byRestart: start, byRotation: ask}
	}
	const put = `[ "$(readlink $C)" = $P/flatline-other.pem ]`
	all := map[string]fileFault{
		"cert-unreadable": {what: "the certificate's mode is 000, and the kubelet may not pass over modes", powerless: true,
			breaks: `chmod 000 "$(readlink -f $C)"`, inPlace: `[ "$(stat -L -c %a $C)" = 0 ]`,
			says: either(cannotStart+"permission denied", cannotAsk+"permission denied")},
		"cert-mode-only": {what: "the certificate's mode is 000",
			breaks: `chmod 000 "$(readlink -f $C)"`, inPlace: `[ "$(stat -L -c %a $C)" = 0 ]`, says: either(cannotStart, cannotAsk)},
		"cert-readonly": {what: "the folder of the certificates is read-only",
			breaks: `mount --bind $P $P; mount -o remount,ro,bind $P`, inPlace: `findmnt -n -o OPTIONS $P | grep -qw ro`,
			says: either(cannotStore+"read-only file system", cannotStore+"read-only file system")},
		"cert-immutable": {what: "the folder of the certificates is immutable",
			breaks: `chattr +i $P`, inPlace: `lsattr -d $P | cut -d' ' -f1 | grep -q i`,
			says: either(cannotStore+"operation not permitted", cannotStore+"operation not permitted")},
		"cert-path-dangling": {what: "the link to the certificate leads nowhere",
			breaks: `ln -s $P/flatline-nowhere.pem $P/flatline-link; mv -T $P/flatline-link $C`, inPlace: `[ -L $C ] && ! [ -e $C ]`,
			says: either(cannotStart+"no such file or directory", cannotAsk+"no such file or directory")},
		"cert-path-plainfile": {what: "a copy of the certificate is in the place of the link",
			breaks: `cp -p --remove-destination "$(readlink -f $C)" $C`, inPlace: `[ -f $C ] && ! [ -L $C ]`,
			says: either(cannotStore+"to be a symlink but it is a file", cannotStore+"to be a symlink but it is a file")},
		"cert-path-moved": {what: "the folder of the certificates has another name",
			breaks: `mv $P $P.away`, inPlace: `[ -d $P.away ]`,
			says: either(cannotStart+"no such file or directory", cannotAsk+"no such file or directory")},
		"cert-truncated": {what: "the certificate is cut short",
			breaks: `truncate -s 300 "$(readlink -f $C)"`, inPlace: `[ "$(stat -L -c %s $C)" = 300 ]`,
			says: either("unable to load TLS certificates from existing bootstrap client config.*", notAnswered+"failed to find any PEM data.*")},
		"cert-empty": {what: "the certificate file is empty",
			breaks: `: > "$(readlink -f $C)"`, inPlace: `[ -e $C ] && ! [ -s $C ]`, says: either("existing bootstrap client config.*", notAnswered)},
		"cert-foreign-ca": {what: "the certificate is signed by a CA that the cluster does not know",
			inPlace: put, says: either("Unauthorized", notAnswered+"Unauthorized"),
			pem: func(_ *Target, n Node) ([]byte, error) {
				ca, err := newAuthority("kubernetes")
				if err != nil {
					return nil, err
				}
				return ca.rotateLater(n.Name, spareLife)
			}},
		"cert-other-node": {what: "the certificate is that of another node",
			inPlace: put, says: either("forbidden", notAnswered+"forbidden"),
			pem: func(t *Target, _ Node) ([]byte, error) {
				return t.ca.rotateLater(t.ControlNodes[len(t.ControlNodes)-1].Name, spareLife)
			}},
	}
	for typ, f := range all {
		traits, _ := judge.TraitsOf(typ)
		f.effects = traits.Effects
		all[typ] = f
	}
	return all
}

// certFile makes the targets' certificate files unusable and has that bite, by a
// restart of the kubelet or at its next rotation.
type certFile struct {
	fileFault
	since map[string]time.Time // of the injection, by node
}

// kubeletDropIn is ours among the drop-ins of the kubelet's unit.
const kubeletDropIn = "/etc/systemd/system/kubelet.service.d/90-flatline.conf"

// fileVars are the variables of the scripts.
const fileVars = "P=" + pkiDir + "\nC=" + timeline.CurrentCertificate + "\n"

// keepFiles puts a copy of the folder, links and modes and all, into the run's.
const keepFiles = `[ -e pki-before ] || { rm -rf pki-before.new; cp -a $P pki-before.new; sync; mv -T pki-before.new pki-before; }
`

// restoreFiles puts the copy in the place of whatever is there now: a kubelet that
// was started without the folder has made a new one. The copy stays until the clean-up, so
// that it can be put back as often as somebody undoes; a repair follows each time.
//
//go:embed restore-files.sh
var restoreFiles string

// Undo puts the files back byte for byte. The kubelet stays stopped until the
// repair.
func (f *certFile) Undo(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps, Step{Desc: "putting the certificate files back", On: n.Name,
			Script: inStage(t.RunID, given(restoreFiles, pkiDir, kubeletDropIn))})
	}
	return steps
}

// Inject breaks the files of each target while its kubelet is stopped, or while it
// waits for its next rotation.
func (f *certFile) Inject(ctx context.Context, t *Target) error {
	f.since = map[string]time.Time{}
	for _, n := range t.Nodes {
		if err := f.keep(ctx, t, n); err != nil {
			return err
		}
	}
	if t.Spec.Trigger == byRotation {
		return f.beforeRotation(ctx, t)
	}
	for i, n := range t.Nodes {
		pem, script, err := f.preparation(t, n)
		if err != nil {
			return err
		}
		stopped, started, err := t.restartKubelet(ctx, n, pem, fileVars+script+f.breaks+"\n")
		if err != nil {
			return fmt.Errorf("breaking the certificate files: %w", err)
		}
		f.since[n.Name] = stopped
		if i == 0 {
			t.injected(stopped, f.what+"; the kubelet is restarted")
		}
		t.installed(n, started, f.file(), pem)
		t.restarted(n, stopped, started)
	}
	return nil
}

// beforeRotation has each kubelet run with a certificate that it will want to
// replace soon, then breaks the files.
func (f *certFile) beforeRotation(ctx context.Context, t *Target) error {
	for _, n := range t.Nodes {
		if c := t.Spec.Certificate; c.Mint == 0 && !f.powerless {
			continue
		}
		pem, script, err := f.forRotation(t, n)
		if err != nil {
			return err
		}
		_, started, err := t.restartKubelet(ctx, n, pem, fileVars+script)
		if err != nil {
			return err
		}
		t.installed(n, started, shortFile, pem)
		t.Emit(timeline.Event{Stamp: started, Source: "run", Type: timeline.TypeKubeletStarted, Object: "node " + n.Name})
		if err := t.waitRenewed(ctx, n.Name, started); err != nil {
			return err
		}
	}
	for i, n := range t.Nodes {
		pem, script, err := f.replacement(t, n)
		if err != nil {
			return err
		}
		times, err := n.times(ctx, pem, inStage(t.RunID, "set -e\n"+fileVars+"at=$(date +%s.%N)\n"+script+f.breaks+"\necho $at"), 1)
		if err != nil {
			return fmt.Errorf("breaking the certificate files of %s: %w", n.Name, err)
		}
		f.since[n.Name] = times[0]
		if i == 0 {
			t.injected(times[0], f.what+" when the kubelet wants the next one")
		}
		t.installed(n, times[0], otherFile, pem)
	}
	return nil
}

// preparation is what is done before a restart: the certificate that the experiment
// makes or the one that is put in its place, and the drop-in.
func (f *certFile) preparation(t *Target, n Node) (stdin []byte, script string, err error) {
	if f.pem != nil {
		return f.replacement(t, n)
	}
	return f.forRotation(t, n)
}

// file is the name of what preparation installs.
func (f *certFile) file() string {
	if f.pem != nil {
		return otherFile
	}
	return shortFile
}

// forRotation installs the certificate that the experiment makes, and the drop-in.
func (f *certFile) forRotation(t *Target, n Node) (stdin []byte, script string, err error) {
	if f.powerless {
		script = "printf '[Service]\\nCapabilityBoundingSet=~CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH\\n' > " + kubeletDropIn +
			"\nsystemctl daemon-reload\n"
	}
	if c := t.Spec.Certificate; c.Mint > 0 {
		stdin, err = t.mint(n, c)
		script += "(umask 077; cat > short.pem)\n" + installScript("short.pem", shortFile)
	}
	return stdin, script, err
}

// replacement installs what is put in the place of the certificate.
func (f *certFile) replacement(t *Target, n Node) (stdin []byte, script string, err error) {
	if f.pem == nil {
		return nil, "", nil
	}
	stdin, err = f.pem(t, n)
	return stdin, "(umask 077; cat > other.pem)\n" + installScript("other.pem", otherFile), err
}

// keep copies a target's files and records how they are.
func (f *certFile) keep(ctx context.Context, t *Target, n Node) error {
	if _, err := n.change(ctx, nil, inStage(t.RunID, "set -e\n"+fileVars+keepFiles)); err != nil {
		return fmt.Errorf("copying the certificate files of %s: %w", n.Name, err)
	}
	return recordFiles(ctx, t, n, "before")
}

// Kept records how the files are after the undo.
func (f *certFile) Kept(ctx context.Context, t *Target) error {
	for _, n := range t.Nodes {
		if _, broken := f.since[n.Name]; !broken {
			continue
		}
		if err := recordFiles(ctx, t, n, "undone"); err != nil {
			return err
		}
	}
	return nil
}

// filesScript prints of each file its mode, owner and what it holds or leads to, and
// of the folder its attributes and mounts.
//
//go:embed list-files.sh
var filesScript string

func recordFiles(ctx context.Context, t *Target, n Node, when string) error {
	out, err := n.bash(ctx, nil, filesScript, pkiDir)
	if err != nil {
		return fmt.Errorf("looking at the certificate files of %s: %w", n.Name, err)
	}
	d := map[string]string{"when": when}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			d[k] = strings.TrimSpace(v)
		}
	}
	t.Emit(timeline.Event{Source: "run", Type: timeline.TypeSnapshot, Object: "certificate files of " + n.Name, Detail: d})
	return nil
}

// Witness sees it biting when every target's kubelet says so, and has failed to
// start more than once if that is the effect.
func (f *certFile) Witness(ctx context.Context, t *Target) (Evidence, error) {
	ev := Evidence{InPlace: true, Biting: f.since != nil}
	var seen []string
	for _, n := range t.Nodes {
		l, err := f.look(ctx, t, n)
		if err != nil {
			return Evidence{}, fmt.Errorf("looking at the certificate files of %s: %w", n.Name, err)
		}
		ev.InPlace = ev.InPlace && l.inPlace
		loops := f.effects[t.Spec.Trigger] != judge.EffectCrashLoop || l.restarts > 1
		ev.Biting = ev.Biting && l.said != "" && loops
		switch {
		case l.said != "":
		case f.effects[t.Spec.Trigger] == judge.EffectNone && l.passesOverModes:
			l.said = "the kubelet reads its files whatever their mode: it has CAP_DAC_OVERRIDE"
		default:
			l.said = "the kubelet has said nothing of the kind so far"
		}
		seen = append(seen, n.Name+": "+l.said)
	}
	ev.Biting = ev.Biting && ev.InPlace
	ev.Seen = strings.Join(seen, "; ")
	return ev, nil
}

// A fileLook is what one look at a node shows.
type fileLook struct {
	inPlace         bool
	restarts        int    // by systemd, since somebody last started the kubelet
	passesOverModes bool   // by its capabilities
	said            string // by the kubelet since the injection
}

// capPassOver are CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH as bits
// (linux/capability.h).
const capPassOver = 1<<1 | 1<<2

func (f *certFile) look(ctx context.Context, t *Target, n Node) (fileLook, error) {
	out, err := n.script(ctx, nil, fmt.Sprintf(`%s{ %s; } 2>/dev/null && echo in || echo out
systemctl show kubelet -p NRestarts --value
caps=$(sed -n 's/^CapEff:[[:space:]]*//p' "/proc/$(systemctl show kubelet -p MainPID --value)/status" 2>/dev/null)
echo "${caps:-0}"
%s`, fileVars, f.inPlace, f.listen(t, n)))
	if err != nil {
		return fileLook{}, err
	}
	lines := strings.SplitN(strings.TrimSpace(out), "\n", 4)
	if len(lines) < 3 {
		return fileLook{}, fmt.Errorf("unexpected answer %q", out)
	}
	restarts, err1 := strconv.Atoi(lines[1])
	caps, err2 := strconv.ParseUint(lines[2], 16, 64)
	if err := errors.Join(err1, err2); err != nil {
		return fileLook{}, fmt.Errorf("unexpected answer %q: %w", out, err)
	}
	l := fileLook{inPlace: lines[0] == "in", restarts: restarts, passesOverModes: caps&capPassOver != 0}
	if len(lines) == 4 {
		l.said = lines[3]
	}
	return l, nil
}

// listen is a script that prints the last words of a kubelet that show the fault
// biting.
func (f *certFile) listen(t *Target, n Node) string {
	since, ok := f.since[n.Name]
	if !ok {
		return ""
	}
	return fmt.Sprintf("journalctl -u kubelet --since @%d -o cat | grep -E '%s' | tail -n 1 | cut -c1-400", since.Unix(),
		f.says[t.Spec.Trigger])
}
