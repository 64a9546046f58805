# What a shell on a host runs to become an agent; see boot.rs.
{
say() { printf '\nbytepath: %s\n' "$*"; }
build_of() { "$1" agent --build 2>&1 </dev/null; }
become() { say found; exec "$1" agent --away; }
say "asks from $(uname -m)"
IFS= read -r build && IFS= read -r own && IFS= read -r size && IFS= read -r copies || exit 1
folder=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
folder=${folder:+$folder/bytepath}
copy=$folder/agent-$build
become_copy() {
    [ "$copies" = kept ] && become "$copy"
    say found
    "$copy" agent --away
    code=$?
    rm -f "$copy"
    rmdir "$folder" 2>/dev/null
    exit $code
}
[ -n "$folder" ] && [ -x "$copy" ] && become_copy
for file in "$own" "$(command -v bytepath)"; do
    [ -x "$file" ] && [ "$(build_of "$file")" = "$build" ] && become "$file"
done
umask 077
if [ -z "$folder" ]; then
    # What has a name that is known before may be anyone's in /tmp.
    folder=$(mktemp -d /tmp/bytepath.XXXXXX)
    copy=$folder/agent-$build
    copies=removed
fi
part=$copy.$$
if ! mkdir -p "$folder" || ! : >"$part"; then
    say "failed: $part cannot be written"
    exit 1
fi
say wanted
if ! head -c "$size" >"$part" || ! chmod 700 "$part"; then
    rm -f "$part"
    say "failed: $part cannot be written"
    exit 1
fi
found=$(build_of "$part")
if [ "$found" = "$build" ]; then
    mv -f "$part" "$copy" && become_copy
fi
rm -f "$part"
say "failed: a copy of this bytepath does not run there:" $found
exit 1
}
